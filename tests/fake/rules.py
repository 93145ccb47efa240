"""Rules: what the fake server does other than answer at once."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from orchestrator.errors import UsageError
from tests.fake import language

ROUTES: Final = (
    "chat", "completions", "score", "choose", "tokenize", "generate", "detokenize", "pooling",
)  # fmt: skip
DIALECTS: Final = (
    "native",
    "vllm_v1",
    "vllm_v2",
    "sglang",
    "tgi",
    "llama_server",
    "openai",
    "ollama",
)
QUIRKS: Final = (
    "after_temperature", "double_bos", "drafts", "ignored_fields", "missing_label",
    "no_prefill", "no_token_grammar", "shifted_echo", "silent_truncation",
)  # fmt: skip

Fault = Literal[
    "429", "500", "503", "status", "reset", "close", "cut", "malformed", "no_logprobs", "sentinel",
    "nan", "null", "error_200", "hang", "empty_choices", "abort", "wrong_types", "echo_key", "exit",
    "reset_head", "reset_body", "hang_head", "hang_body", "drip", "huge", "truncated", "infinity",
    "fewer_logprobs", "more_logprobs", "positive", "flood", "unsaid", "withheld",
]  # fmt: skip


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule. The first rule that has a say in a matter and applies decides it.

    Attributes:
        model: Pattern of model names; `*` stands for any characters.
        route: One of `ROUTES`, or `*`.
        latency_s: Delay, or its range (uniform, by a hash of the request).
        latency_per_token_s: Delay for each generated token, added.
        fault: What goes wrong.
        probability: Chance of the fault, by a hash of request and attempt.
        sticky: The hash leaves the attempt out, so that a request fails always or never.
        every: The fault strikes each k-th request that the rule sees.
        first: The fault strikes the first k attempts of each request.
        after: The rule sleeps until it has seen so many requests.
        status: Of the fault "status".
        message: In the body of faults that have one.
        retry_after_s: Header of the faults "429", "503" and "status".
        headers: Further headers of these.
        judge_evenly: Choices are even over the labels.
        judge_first: Choices prefer the answer shown first, whatever the answers are.
        label_mass: Probability of all labels together in choices.
        labels: What one-token answers are chosen from.
        text: What every generation says.
        refusal: What a refused answer says, in the dialect "openai".
        fixed: File whose content is the body of every reply.
        noise: Standard deviation of what is added to each log-probability that a reply lists, nats;
            by a hash of request and attempt, with `sticky` of the request alone.
    """

    model: str = "*"
    route: str = "*"
    latency_s: float | tuple[float, float] | None = None
    latency_per_token_s: float = 0.0
    fault: Fault | None = None
    probability: float | None = None
    sticky: bool = False
    every: int | None = None
    first: int | None = None
    after: int = 0
    status: int = 500
    message: str = "an invented fault"
    retry_after_s: float | None = None
    headers: dict[str, str] = {}
    judge_evenly: bool = False
    judge_first: bool = False
    label_mass: float | None = None
    labels: tuple[str, ...] | None = None
    text: str | None = None
    refusal: str | None = None
    fixed: str | None = None
    noise: float = 0.0


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of a server.

    Attributes:
        rules: In order of precedence.
        quality: Quality of models by name, in [0, 1]; otherwise the number at the end of the name
            (`fake:0.3`), otherwise a hash of the name.
        seed: Varies everything that is drawn by a hash.
        context_tokens: Longer prompts are refused as a real server refuses them.
        top_logprobs: More alternatives are refused.
        dialect: Whose routes and shapes it speaks, of `DIALECTS` or a module of
            `tests.fake.dialects`; not for "native", the embedded server's.
        quirks: Lasting oddities of the server, of `QUIRKS`; not for "native".
        capacity: Pairs of a request's number and how many requests are computed at a time from that
            one on; the others wait. Without a bound where empty.
    """

    rules: tuple[Rule, ...] = ()
    quality: dict[str, float] = {}
    seed: int = 0
    context_tokens: int = 131_072
    top_logprobs: int = 20
    dialect: str = "native"
    quirks: frozenset[str] = frozenset()
    capacity: tuple[tuple[int, Annotated[int, msgspec.Meta(ge=1)]], ...] = ()


class Case(msgspec.Struct):
    """A request as rules see it: model, route, content hash, and how often it came (from 1)."""

    model: str
    route: str
    content: str
    attempt: int


class Verdict(msgspec.Struct):
    """Effects of the rules on one request; `noise` is its strength and the seed of its draw."""

    latency_s: float = 0.0
    latency_per_token_s: float = 0.0
    fault: Rule | None = None
    fixed: bytes | None = None
    judge_evenly: bool = False
    judge_first: bool = False
    label_mass: float | None = None
    labels: tuple[str, ...] | None = None
    text: str | None = None
    refusal: str | None = None
    noise: tuple[float, int] | None = None


def load(given: object) -> Rules:
    """Rules from JSON text, the path of a JSON file, or what JSON decodes to.

    A list is a list of rules.

    Raises:
        UsageError: If they are malformed, with where.
    """
    if given is None or isinstance(given, Rules):
        return given or Rules()
    try:
        if isinstance(given, (str, Path)):
            if isinstance(given, str) and given.lstrip()[:1] in {"{", "[", "n"}:
                text = given.encode()
            else:
                text = Path(given).read_bytes()
            given = msgspec.json.decode(text)
        if given is None:
            return Rules()
        rules = msgspec.convert({"rules": given} if isinstance(given, list) else given, Rules)
    except (msgspec.DecodeError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"rules of the fake server: {error}") from error
    if unknown := sorted(rules.quirks - set(QUIRKS)):
        raise UsageError(f"rules of the fake server: no quirk {', '.join(unknown)}")
    return rules


class Referee:
    """Applies rules; counts what each of them has seen."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen = [0] * len(rules.rules)
        self._bodies = {
            rule.fixed: _read(rule.fixed) for rule in rules.rules if rule.fixed is not None
        }

    def judge(self, case: Case) -> Verdict:
        """Return the effects of the rules on a request."""
        verdict: dict[str, Any] = {}
        for at, rule in enumerate(self._rules.rules):
            if rule.route not in {"*", case.route} or not fnmatchcase(case.model, rule.model):
                continue
            self._seen[at] += 1
            if self._seen[at] > rule.after:
                for matter, said in self._say(at, rule, case).items():
                    verdict.setdefault(matter, said)
        return Verdict(**verdict)

    def _say(self, at: int, rule: Rule, case: Case) -> dict[str, object]:
        said: dict[str, Any] = {}
        if rule.noise:
            attempt = 0 if rule.sticky else case.attempt
            drawn_by = language.number(self._rules.seed, at, "noise", case.content, attempt)
            said["noise"] = (rule.noise, drawn_by)
        if rule.latency_s is not None:
            given = rule.latency_s
            low, high = given if isinstance(given, tuple) else (given, given)
            share = language.fraction(self._rules.seed, at, "latency", case.content, case.attempt)
            said["latency_s"] = low + (high - low) * share
        if rule.latency_per_token_s:
            said["latency_per_token_s"] = rule.latency_per_token_s
        if rule.fault is not None and self._strikes(at, rule, case):
            said["fault"] = rule
        if rule.fixed is not None:
            said["fixed"] = self._bodies[rule.fixed]
        if rule.judge_evenly:
            said["judge_evenly"] = True
        if rule.judge_first:
            said["judge_first"] = True
        for name in ("labels", "text", "refusal", "label_mass"):
            if (value := getattr(rule, name)) is not None:
                said[name] = value
        return said

    def _strikes(self, at: int, rule: Rule, case: Case) -> bool:
        if rule.every is not None and (self._seen[at] - rule.after) % max(rule.every, 1):
            return False
        if rule.first is not None and case.attempt > rule.first:
            return False
        if rule.probability is None:
            return True
        attempt = 0 if rule.sticky else case.attempt
        chance = language.fraction(self._rules.seed, at, "fault", case.content, attempt)
        return chance < rule.probability


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"rules of the fake server: {error}") from error
