"""What the policy reads: the single place that knows where the advantage indicator stands in the prompt.

lerobot's pi0.5 turns a task and a state into ``Task: {task}, State: {bins};\\nAction: `` and replaces newlines in the task by spaces. The
indicator is therefore appended to the *task text*, after a newline, as the reference implementation does; the model reads
``Task: open the drawer Advantage: positive, State: 12 255 0;\\nAction: ``. So stock lerobot serves the conditional policy: whoever calls
it appends the suffix to the task. The unconditional branch is the plain prompt; there is no null token (Physical Intelligence,
pi*0.6, section IV-B: the indicator stands after the instruction and before the actions).
"""

PLAIN, POSITIVE, NEGATIVE = 0, 1, 2
KIND_NAMES = ("plain", "positive", "negative")
SUFFIXES = ("", "\nAdvantage: positive", "\nAdvantage: negative")
TEMPLATE = "Task: {task}, State: {state};\nAction: "  # lerobot's, for the record in serving.json


def with_indicator(task: str, kind: int) -> str:
    """The task text that makes lerobot's processor produce the prompt of ``kind`` (``PLAIN``, ``POSITIVE`` or ``NEGATIVE``)."""
    return task + SUFFIXES[kind]


def tokenizer_corpus(tasks: list[str]) -> list[str]:
    """Texts to train a tokenizer on: every prompt there is, with the ten digits as its state.

    Numbers thus stay digits, as in Gemma's tokenizer: 127 and 128 share their first two tokens, which a small model needs to generalise.
    """
    digits = " ".join(map(str, range(10)))
    return [TEMPLATE.format(task=with_indicator(task, kind).replace("\n", " "), state=digits) for task in tasks for kind in range(3)]
