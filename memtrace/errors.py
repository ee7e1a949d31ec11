"""The one exception whose text is meant for the person at the terminal."""


class MemtraceError(Exception):
    """A fault in the input or the environment, said in one line.

    The text names the file, says what is wrong and what to do. The command line prints it on
    stderr and exits with code 1; anything else that escapes is a bug in memtrace.
    """


class Interrupted(BaseException):
    """A recorded script ended by KeyboardInterrupt, and so is the process to end."""
