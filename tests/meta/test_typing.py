"""``enqueue``, and a task that is called directly, are typed like the function: the type checker finds what is wrong before anything runs."""

import re
from pathlib import Path

import pytest
from mypy import api
from support.folders import APPS, ROOT

WRONG = """
from typing_cases import Letter, add, apologise, app, bill, embed, invoice, post, session, tell
from unstuck import Depends

async def wrong() -> None:
    await add.enqueue("1", 2)                           # arg-type: incompatible type "str"; expected "int"
    await add.enqueue(1)                                # call-arg: Missing positional argument "b"
    await add.enqueue(1, 2, 3)                          # call-arg: Too many arguments
    await add.enqueue(1, c=2)                           # call-arg: Unexpected keyword argument "c"
    add.enqueue_sync(1, b="2")                          # arg-type: incompatible type "str"; expected "int"
    add.options(delay=5).enqueue_sync(1, None)          # arg-type: incompatible type "None"; expected "int"
    await add.options(key="k").enqueue(a=1)             # call-arg: Missing positional argument "b"
    await app.enqueue_many([add.call(1, "2")])          # arg-type: incompatible type "str"; expected "int"
    await app.enqueue_in(object(), [add.call("1", 2)])  # arg-type: incompatible type "str"; expected "int"
    await post.enqueue("ann")                           # arg-type: incompatible type "str"; expected "Letter"
    await post.enqueue(Letter("ann"), copies=2.5)       # arg-type: incompatible type "float"; expected "int"
    await tell.enqueue("ann", True)                     # call-arg: Too many positional arguments
    add.options(priority="high")                        # arg-type: incompatible type "str"; expected "int"
    add.options(retry="3")                              # arg-type: incompatible type "str"; expected "Retry | int | None"
    add.options(lease=5)                                # call-arg: Unexpected keyword argument "lease"
    number: int = await (await post.enqueue(Letter("ann"))).result()  # assignment: type "list[str]", variable has type "int"
    text: str = add.enqueue_sync(1, 2).result()         # assignment: type "int", variable has type "str"
    texts: list[str] = (await add.enqueue(1, 2)).result()  # assignment: type "Coroutine[Any, Any, int]"
    (await add.enqueue(1, 2)).resutl()                  # attr-defined: has no attribute "resutl"
    await bill.enqueue(5)                               # arg-type: incompatible type "int"; expected "str"
    add("1", 2)                                         # arg-type: incompatible type "str"; expected "int"
    count: int = await post(Letter("ann"))              # assignment: type "list[str]", variable has type "int"
    post(Letter("ann"))                                 # unused-coroutine: must be used
    await embed("a")                                    # arg-type: incompatible type "str"; expected "list[str]"
    text = add(1, 2).upper()                            # attr-defined: "int" has no attribute "upper"
    app.task(on_success=apologise)                      # arg-type: expected "OnSuccess | None"
    app.task(on_failure=invoice)                        # arg-type: expected "OnFailure | None"
    app.task(on_failure=post)                           # arg-type: expected "OnFailure | None"
    app.task(queue=5)                                   # call-overload: No overload variant of "task"
    def send(db: int = Depends(session)) -> None: ...   # assignment: default has type "Session", parameter has type "int"
    app.task(retry="3")                                 # call-overload: No overload variant of "task"
"""
CASES = [tuple(re.split(r"\s{2,}# ", line.strip())) for line in WRONG.splitlines() if "  # " in line]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What the type checker has to say, by line, of the right cases and of the wrong ones."""
    file = tmp_path_factory.mktemp("typing") / "wrong_cases.py"
    file.write_text(WRONG)
    config = ROOT / "pyproject.toml"
    options = ["--strict", "--hide-error-context", "--no-error-summary", f"--config-file={config}"]

    output, errors, _ = api.run([*options, str(APPS / "typing_cases.py"), str(file)])

    assert errors == ""
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", output, re.MULTILINE)
    assert {Path(name).name for name, _, _ in found} == {file.name}, output
    return {int(line): text for _, line, text in found}


@pytest.mark.parametrize(("code", "expected"), CASES, ids=[code for code, _ in CASES])
def test_a_wrong_call_is_an_error(code: str, expected: str, complaints: dict[int, str]) -> None:
    line = next(n for n, text in enumerate(WRONG.splitlines(), 1) if text.strip().startswith(code + "  "))
    name, _, words = expected.partition(": ")

    complaint = complaints.get(line, "no error at all")

    assert words in complaint
    assert complaint.endswith(f"[{name}]")


def test_nothing_else_is_an_error(complaints: dict[int, str]) -> None:
    lines = WRONG.splitlines()

    assert [lines[number - 1] for number in complaints if "  # " not in lines[number - 1]] == []
