"""The loops that keep the scheduler going, each one a testable step around pure decisions."""
