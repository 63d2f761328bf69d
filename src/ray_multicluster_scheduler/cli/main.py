"""Entry point of `raymc`. It imports nothing heavy at first, so that Ctrl-C is handled at any moment.

Exit codes: 0 all is well, 1 a job or a check failed, 2 usage or configuration, 130 interrupted, 143 and 129
ended by SIGTERM and SIGHUP.
"""

import atexit
import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        from ray_multicluster_scheduler.cli.console import held, unwinding  # noqa: PLC0415 - see above

        with unwinding():
            with held():
                from ray_multicluster_scheduler.cli.registry import run  # noqa: PLC0415 - see above
            run()
    except KeyboardInterrupt:
        sys.exit(130)


def script() -> None:
    """Run the command line as the whole program, and end at once.

    Python would tear down all modules: a tenth to a fifth of a second for nothing. Other exit handlers still
    run before: the first to be registered is the last to be called.
    """
    codes: list[int] = []

    def leave() -> None:
        if codes:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except OSError:
                return  # a closed pipe: Python says so in its own way
            os._exit(codes[0])

    atexit.register(leave)
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            codes.append(ended.code or 0)
        raise
    codes.append(0)


if __name__ == "__main__":
    script()
