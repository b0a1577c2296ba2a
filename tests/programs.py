"""Python programs that tests start, and kill."""

import signal
import subprocess
import sys
import textwrap
import time

from paths import FOLDERS


def program(code: str, **values: object) -> list[str]:
    """The command that runs `code`, which can import the tests' helpers; `{name!r}` in it stands for a value."""
    return [sys.executable, "-c", f"import sys\nsys.path[:0] = {FOLDERS!r}\n{textwrap.dedent(code.format(**values))}"]


def killed_at(command: list[str], wanted: int, after: float = 0.0) -> int:
    """Kills a program some seconds after it has printed a number that is large enough, and returns that number."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        promised = next(done for line in process.stdout if (done := int(line)) >= wanted)
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
    return promised


def loaded(code: str) -> set[str]:
    """The packages that a program of these statements has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
