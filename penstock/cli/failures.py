"""Ends a command: turns every failure into one line on standard error and an exit code for scripts.

A failure that is not listed here is a bug of Penstock and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from enum import IntEnum

import click
import orjson

from penstock.cli.output import colour_choice
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


# A write to standard output fails with these. Errors of files name the file, those of sockets become ClientError.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

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
    ("POST /v1/access/keys adds one", "penstock url-key add makes one"),
    ("alter it with PATCH", "alter it with penstock topic alter"),
    ("has nothing at key_pointer ", "has nothing at --key-pointer "),
)


class Failure(click.ClickException):
    """A failure with its own message and exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def require_standard_streams() -> None:
    """Raises Failure if standard output is closed.

    Otherwise the next file or socket that is opened would have its number, and output would go there.
    """
    if sys.stdout is None:
        raise Failure("standard output is closed; redirect it to a file or to /dev/null")


def report_failure(error: BaseException, *, as_json: bool = False) -> int:
    """Prints the failure and returns its exit code. Raises it unchanged if it is a bug.

    With `as_json` the line is a JSON object for programs: `{"error": …, "exit_code": …}`, and the node's `problem` if
    the node answered with one.
    """
    code = _exit_quietly(error)
    if code is not None:
        return code
    failure = _explain(error)
    if failure is None:
        raise error
    with suppress(OSError):  # standard error may be full, too
        _print_failure(*failure, error if as_json else None)
    return failure[1]


def _exit_quietly(error: BaseException) -> int | None:
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        _forget_stdout()
        return ExitCode.BROKEN_PIPE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.message, err=True)
        return ExitCode.USAGE
    return None


def _explain(error: BaseException) -> tuple[str, ExitCode] | None:
    """Returns the line of a failure and its exit code; None if it is a bug."""
    if isinstance(error, Failure):
        return error.message, error.code
    if isinstance(error, click.UsageError):
        return _usage_line(error), ExitCode.USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), ExitCode.USAGE
    if isinstance(error, ClientError):
        return describe_error(error)
    if not isinstance(error, OSError):
        return None
    reason = (error.strerror or str(error)).lower()
    if error.filename is not None:
        return f"{error.filename}: {reason}", ExitCode.FAILED
    if error.errno in _OUTPUT_ERRORS:
        _forget_stdout()
        return f"cannot write to standard output: {reason}", ExitCode.FAILED
    return None


def describe_error(error: ClientError) -> tuple[str, ExitCode]:
    """Returns a line for the terminal that explains a failed request, and the exit code."""
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
    """Returns the detail in words of the command: flags for query parameters, commands for requests."""
    text, flag = error.detail, _FLAGS.get(str(error.members.get("parameter")))
    if flag is not None:
        text = text.replace(str(error.members["parameter"]), flag, 1)
    for of_http, of_command in _ADVICE:
        text = text.replace(of_http, of_command)
    if error.code == "offset_above_high_watermark":
        text += "; a number is an offset: give a time as 2013-01-01T05:00:00Z"
    return text


def _usage_line(error: click.UsageError) -> str:
    text = error.format_message().rstrip(".").replace("\n", " ")
    text = text[:1].lower() + text[1:]
    path = error.ctx.command_path if error.ctx is not None else "penstock"
    return f"{text}; see {path} --help"


def _print_failure(message: str, code: ExitCode, error: BaseException | None) -> None:
    """Prints one line; as JSON if the error is given."""
    line = " ".join(message.split())
    if error is not None:
        document = {"error": line, "exit_code": code} | ({"problem": _problem(error)} if _problem(error) else {})
        click.echo(orjson.dumps(document).decode(), err=True)
        return
    click.secho("penstock: ", fg="red", bold=True, nl=False, err=True, color=colour_choice())
    click.echo(line, err=True)


def _problem(error: BaseException) -> dict[str, object] | None:
    cause = error if isinstance(error, ProblemError) else error.__cause__
    if not isinstance(cause, ProblemError):
        return None
    names = ("status", "code", "detail", "retryable", "no_side_effects", "request_id")
    return {**{name: getattr(cause, name) for name in names}, **cause.members}


def _forget_stdout() -> None:
    """Redirects standard output to /dev/null: the interpreter flushes it at exit, which would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
