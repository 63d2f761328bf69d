"""Entry point of `raymc`. It imports nothing at first, so that Ctrl-C finds it ready at any moment.

Exit codes: 0 all is well, 1 a job or a check failed, 2 usage or configuration, 130 interrupted, 143 and 129
ended by SIGTERM and SIGHUP.
"""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from ray_multicluster_scheduler.cli.signals import held, unwinding  # noqa: PLC0415 - see above

        with unwinding():
            with held():
                from ray_multicluster_scheduler.cli.commands import run  # noqa: PLC0415 - see above
            run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
