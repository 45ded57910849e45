"""Ends a command: turns every failure into one line on standard error and an exit code for scripts.

A failure that is not listed here is a bug of Penstock and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from enum import IntEnum

import click

from penstock.errors import ClientClosed, ClientError, ConnectionFailed, DeliveryTimedOut, ProblemError


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # the command did not succeed: a damaged file, a file that cannot be read
    USAGE = 2
    UNREACHABLE = 3  # no node answers
    REFUSED = 4  # the node answered with a problem
    LOST = 5  # records were deleted before they were ingested
    INTERRUPTED = 130  # 128 + SIGINT
    BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader of our output has closed it


# The flags of commands, by the names of the request parameters that they set.
_FLAGS = {
    **{name: f"--{name.replace('_', '-')}" for name in ("key", "key_pointer", "acks", "partition", "config")},
    "offset": "--from",
    "timestamp": "--from",
    "from": "--from",
    "max_records": "--count",
    "ndjson": "--format",
}

# HTTP requests and parameters in the details of problems, and the commands and flags that replace them.
_ADVICE = (
    ("create it with PUT /v1/topics/", "create it with penstock topic create "),
    ("alter it with PATCH", "alter it with penstock topic alter"),
    ("has nothing at key_pointer ", "has nothing at --key-pointer "),
)


class Failure(click.ClickException):
    """A failure with its own message and exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def report_failure(error: BaseException) -> int:
    """Print the failure and return its exit code. Raises it unchanged if it is a bug."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        _forget_stdout()
        return ExitCode.BROKEN_PIPE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, Failure):
        return _print_failure(error.message, error.code)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.message, err=True)
        return ExitCode.USAGE
    if isinstance(error, click.UsageError):
        return _print_failure(_usage_line(error), ExitCode.USAGE)
    if isinstance(error, click.ClickException):
        return _print_failure(error.format_message(), ExitCode.USAGE)
    if isinstance(error, ClientError):
        return _print_failure(*describe_error(error))
    if isinstance(error, OSError) and error.filename is not None:
        return _print_failure(f"{error.filename}: {(error.strerror or str(error)).lower()}", ExitCode.FAILED)
    raise error


def describe_error(error: ClientError) -> tuple[str, ExitCode]:
    """Return a line for the terminal that explains a failed request, and the exit code."""
    if isinstance(error, ConnectionFailed):
        return f"cannot reach {error.detail}", ExitCode.UNREACHABLE
    if isinstance(error, ProblemError):
        return f"{_in_flags(error)} [{error.code}]", ExitCode.REFUSED
    if isinstance(error, DeliveryTimedOut):
        return error.detail, ExitCode.UNREACHABLE if isinstance(error.last, ConnectionFailed) else ExitCode.REFUSED
    if isinstance(error, ClientClosed):
        return "stopped before the end", ExitCode.INTERRUPTED
    return error.detail, ExitCode.FAILED


def _in_flags(error: ProblemError) -> str:
    """Return the detail in words of the command: flags for query parameters, commands for requests."""
    text, flag = error.detail, _FLAGS.get(str(error.members.get("parameter")))
    if flag is not None:
        text = text.replace(str(error.members["parameter"]), flag, 1)
    for of_http, of_command in _ADVICE:
        text = text.replace(of_http, of_command)
    return text


def _usage_line(error: click.UsageError) -> str:
    text = error.format_message().rstrip(".").replace("\n", " ")
    text = text[:1].lower() + text[1:]
    path = error.ctx.command_path if error.ctx is not None else "penstock"
    return f"{text}; see {path} --help"


def _print_failure(message: str, code: ExitCode) -> ExitCode:
    click.secho("penstock: ", fg="red", bold=True, nl=False, err=True)
    click.echo(" ".join(message.split()), err=True)
    return code


def _forget_stdout() -> None:
    """Redirect standard output to /dev/null: the interpreter flushes it at exit, which would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
