"""Whose state a refusal tells of: one request's, the account's, or the server's.

One table decides, by the status and by the words of the body. Providers use one status for many
things (403: a key without the right, a flagged prompt, log-probabilities that are not given), so
words go before the status. Words that no row knows leave the status; and a status that may mean
either is unclear: the scheduler finds out by whether other requests are answered.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from orchestrator.records import ACCOUNT, REQUEST, SERVER, UNCLEAR


class Ruling(NamedTuple):
    """What a refusal is.

    Attributes:
        cause: One word for grouping.
        scope: Whose state it is; see `records.Failure`.
        permanent: Whether the same request would meet it again, whoever acts meanwhile; where it is
            unclear, if it shows to be the request's.
        advice: What its reader can do; empty where the words say it.
    """

    cause: str
    scope: str = REQUEST
    permanent: bool = False
    advice: str = ""


class _Row(NamedTuple):
    words: re.Pattern[str]
    ruling: Ruling
    but: frozenset[int] = frozenset()
    """Statuses that these words do not change."""


_LATER: Final = "then run the same command: it goes on where it was"
_CREDIT: Final = Ruling("no_credit", ACCOUNT, advice=f"add credit or raise the limit, {_LATER}")
_KEY: Final = Ruling("unauthorised", ACCOUNT, advice=f"check key, rights, base_url, {_LATER}")
_NO_MODEL: Final = Ruling("not_found", UNCLEAR)
_FLAGGED: Final = Ruling("moderation", permanent=True)
_TOO_LONG: Final = Ruling("too_long", permanent=True)
# As OpenAI refuses a reasoning that takes all the tokens there may be.
_CUT: Final = Ruling("no_answer", permanent=True, advice="no answer came within max_tokens")
_NO_LOGPROBS: Final = Ruling("no_logprobs", UNCLEAR)
_SETTING: Final = Ruling("unsupported", UNCLEAR)
_NO_SYSTEM: Final = _SETTING._replace(advice="say `backend: {kind: openai, system_role: false}`")
_OVERLOADED: Final = Ruling("rate_limited")
_BROKEN: Final = Ruling("server_error")
_UNLOADED: Final = Ruling("server_error", UNCLEAR)
_ODD: Final = Ruling("bad_request", UNCLEAR)


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


_NOT: Final = (
    r"(?:\bnot\b(?! exceed| be (?:greater|more))|n['\u2019]t\b|\bcannot\b|\bno longer\b|\bnever\b)"
)
_REFUSED: Final = (
    rf"(?:{_NOT}|unsupported|unavailable|disabled|forbidden|denied|unrecogni[sz]ed|unknown|"
    r"unexpected|extra (?:inputs?|fields?)|extra_forbidden)"
)
_FIELDS: Final = (
    r"\b(?P<field{n}>seed|temperature|top_p|top_k|min_p|stop|stream|n|max_tokens|"
    r"max_completion_tokens|return_token_ids|continue_final_message|add_generation_prompt|"
    r"enable_thinking)\b"
)
_THROTTLED: Final = _words(
    r"throttlingexception|too many requests|wait before trying",
    r"(?:capacity|allocated quota) exceeded",
)
_OF_A_MINUTE: Final = _words(
    _THROTTLED.pattern,
    r"(?:per[ _-]|/ ?)(?:second|minute|hour|day|min)(?![a-z])",
    r"rate[ _-]?limit",
    r"\b[RT]P[MDS]\b",
    r"resource has been exhausted|quota will be replenished|call volume quota",
)
# Whatever else they say: what is over is not a minute's share.
_NO_MONEY: Final = _words(
    r"余额|欠费|充值|额度",
    r"(?:all|any|enough|out of|insufficient) (?:\w+ ){0,2}(?:credits?|balance|funds)\b",
    r"\b(?:balance|credits?|funds) (?:is|are) (?:too low|insufficient|exhausted)",
    r"(?:spend|spending) (?:limit|cap)\b|good standing|free tier.{0,30}exhausted|credits? expired",
)
_NEVER_WITHIN: Final = _words(r"request too large.*\blimit\b.{0,30}\brequested\b")
FIELD_REFUSED: Final = _words(
    _FIELDS.format(n=1) + rf"[\"'`]?.{{0,40}}{_REFUSED}",
    rf"{_REFUSED}.{{0,40}}[\"'`:. ]" + _FIELDS.format(n=2),
)
"""A field of the request is refused, its name in group `field1` or `field2`."""
SYSTEM_REFUSED: Final = _words(
    r"system[_ ](?:role|messages?|prompts?|instructions?)\b.{0,40}" + _REFUSED,
    _REFUSED + r".{0,40}\b(?:system|developer)[_ ](?:role|messages?|prompts?|instructions?)\b",
    r"(?:developer|system)[_ ]instructions? (?:is|are) not",
    r"(?:unexpected|unsupported|invalid|unknown) role:? [\"'`]?(?:system|developer)",
    r"roles must alternate",
    r"\brole\b.{0,40}(?:unknown variant|does not support|not supported)\W{0,4}(?:system|developer)",
    r"only [\"'`]?user[\"'`]?.{0,40}assistant[\"'`]?.{0,40}roles?",
    r"[\"'`]?role[\"'`]?.{0,40}should be [\"'`]?user[\"'`]? or [\"'`]?assistant",
)
"""The role system is refused."""
CAP: Final = _words(
    r"(?:log_?probs?(?:_num)?|top_n_tokens)\b.{0,100}(?:at most|less than|<=|\bmax\w*|greater than|"
    r"between|exceed|\brange\b|smaller than|too (?:large|many|high)|\bin [\[(]?\d|up to \d)",
    r"(?:at most|\bmax\w*|up to|less than or equal to|range of).{0,40}log_?probs?\b",
)
"""More alternatives were asked for than the server lists."""
_MOST: Final = re.compile(
    r"(?:max(?:imum)?(?: allowed| value)?|at most|less than or equal to|<=|between \d+ and|"
    r"\bin [\[(]?\d+\s?(?:,|\.\.)|range\D{0,30}\d+|not exceed|smaller than|up to)"
    r"\D{0,20}([0-9]{1,9})(?![0-9])(?P<excluded> \(exclusive\))?",
    re.IGNORECASE,
)
LEAST: Final = re.compile(
    r"max\w*_tokens\b.{0,80}?(?:>=|at least|min(?:imum)?(?: value)?(?: is| of)?|"
    r"greater than or equal to)\D{0,10}([0-9]{1,3})(?![0-9])",
    re.IGNORECASE | re.DOTALL,
)
"""Fewer tokens are refused than the server draws at least, their number in group 1."""
_LISTS_NONE: Final = _words(
    rf"{_REFUSED}.{{0,60}}log_?prob",
    rf"log_?prob\w*.{{0,60}}{_REFUSED}",
    r"log_?prob\w*.{0,20}must be (?:set to )?(?:false|null|0\b)",
    r"no endpoints found that can handle the requested param",
)
_ACCOUNT_CLOSED: Final = _words(
    r"\b(?:account|organi[sz]ation|project|workspace|subscription|access|user)\b.{0,60}"
    r"\b(?:deactivated|suspended|terminated|disabled|banned|restricted|not active|inactive|"
    r"revoked|expired|locked|closed)\b",
    r"(?:country|region|territory|location).{0,40}not (?:supported|available|allowed)",
)
_MODERATED: Final = _words(
    r"moderat(?:ion|ed|or)",
    r"\bflagged\b",
    r"content[ _-]?(?:policy|policies|filter|management|violat|inspection|safety|restriction)",
    r"\bcontent\b.{0,20}\brisk|high[ _-]risk",
    r"\b(?:content|prompt|input|output|response)s?\b.{0,50}\bblocked|censor",
    r"guard-?rail",
    r"(?:safety|responsible[ _]?ai|usage|acceptable use)[ _-](?:system|filter|polic|check|setting)",
    r"(?:blocked|rejected|refused|filtered).{0,40}(?:safety|content|filter|harm|prohibited)",
    r"violat\w*.{0,60}(?:polic|guideline|terms)",
    r"data[ _]?inspection|risk[ _]?detection|new_sensitive",
    r"\b(?:inappropriate|harmful|sensitive|prohibited|unsafe)[ _](?:content|information|word|data)",
    r"违规|敏感|不安全|风险",
)
_SPENT: Final = _words(
    _NO_MONEY.pattern,
    r"insufficient[ _](?:user[ _])?(?:quota|balance|credits?|funds)|(?:enough|out of)_balance",
    r"credit balance",
    r"\b(?:enough|more|out of|no|exhausted|exceeded|insufficient|remaining).{0,30}\bcredits?\b",
    r"\bcredits?\b.{0,30}(?:exhausted|exceeded|depleted|used up|ran out|insufficient)",
    r"\bbilling\b|\bpayment|credit card|\btop up\b|\bprepaid\b|\barrears\b|\boverdue\b|recharge",
    r"quota.{0,40}(?:exceeded|exhausted|used up|reached|not enough)|exceeded.{0,40}\bquota",
    r"\b(?:spend|spending|usage|budget|key|monthly|cost)\b.{0,30}\blimit\b.{0,30}"
    r"(?:exceed|reach|hit)|(?:exceed|reach|hit)\w*.{0,40}\b(?:spend\w*|usage|budget|key|monthly)"
    r".{0,12}limit",
    r"budget.{0,20}exceeded|exceeded.{0,20}budget|\barrearage",
)
_WRONG_KEY: Final = _words(
    r"(?:incorrect|invalid|missing|expired|wrong|revoked|no|malformed).{0,30}"
    r"(?:api[ _-]?key|credentials?|access token|bearer|auth\w* token|subscription key)",
    r"(?:api[ _-]?key|credentials?|access token|subscription key)\b.{0,40}"
    r"(?:not valid|invalid|missing|expired|required|not found|incorrect|revoked|not provided)",
    r"authentication (?:failed|fails|error|required)|unauthenticated|\blogin fail",
)
_MISSING_MODEL: Final = _words(
    r"\bmodel\b.{0,100}(?:does not exist|do not exist|not found|not exist|is not a valid|"
    r"not available|not loaded|not deployed|decommissioned|deprecated|has been retired|"
    r"no longer (?:available|supported))",
    r"no models? (?:is |are )?(?:currently )?loaded",
    r"(?:unknown|invalid|no such|nonexistent|not a valid) model",
    r"(?:unable to access|no available channel for|on-demand throughput).{0,30}\bmodel\b",
    r"\bmodel\b.{0,80}(?:identifier is invalid|on-demand throughput|not supported by any)",
    r"does not work with the specified model|无可用渠道|模型不存在",
    r"model_not_(?:found|supported|available)|deploymentnotfound|no endpoints found",
)
_SIZE: Final = r"(?=.*(?:token|length|context|character|too long|too large|size))"
_UNFINISHED: Final = _words(r"max_tokens.{0,40}\bwas reached")
_DRAWS_LESS: Final = _words(r"at most \d+ completion tokens|maximum output for this model")
_OVERFLOW: Final = _words(
    # A part of the request, and that it is over something, in one sentence.
    rf"\A{_SIZE}.*\b(?:prompts?|inputs?|messages?|requests?|conversation|sequence|text|tokens?|"
    r"context|content|input_ids)\b[^!?]{0,100}?\b(?:too (?:long|large|many|big)|exceed\w*|"
    r"(?:longer|larger|bigger) than|greater than (?:the )?(?:context|max|model|limit)|overflow\w*)",
    r"context[ _-]?(?:length|window|size|limit)",
    r"max(?:imum)?[ _](?:context|prompt|input|sequence|seq|model)[ _-]?(?:length|len|token)",
    r"must have less than \d+ tokens|max_new_tokens. must be|string too long|string_above_max",
    r"too many (?:input |prompt )?tokens|reduce the (?:length|size) of|range of input length",
    r"token limit|input token count|prompt is too long|input (?:is|are) too long|session_len",
    r"request_too_large|超长|过长|长度.{0,12}超|超.{0,12}长度|tokens?.{0,12}超",
)
_ONE_FORM_ONLY: Final = _words(
    r"\b(?:only|must).{0,30}\bstream\w*\b|\bnon-?streaming\b", r"chat template"
)
_BY_CHANCE: Final = _words(
    r"\bcrashed\b|channel error|operation cancel|errored already|out of memory|\bterminated\b",
    r"temporar(?:y|ily)|(?:try|retry)[^.]{0,20}\blater\b|unable to process your request",
    r"could not parse the json body",
)

_NEEDS_A_KEY: Final = frozenset({401, 402, 403, 407})
_UNSTATED: Final = 0
_OF_A_REQUEST: Final = frozenset({_UNSTATED, 400, 413, 422})
# They mean several things, of which a limit for some time passes by itself.
_OF_MANY: Final = frozenset({_UNSTATED, 403, 429})
_OWN_ERROR: Final = 500
_BUSY: Final = frozenset({408, 409, 424, 425, 429, 529})
_TABLE: Final = (
    _Row(_NO_MONEY, _CREDIT, _BUSY - {429}),
    _Row(_ACCOUNT_CLOSED, _KEY, _BUSY | {402, 404}),
    _Row(_MODERATED, _FLAGGED, (_BUSY - {424}) | {401, 402, 404}),
    _Row(_SPENT, _CREDIT, _BUSY - {429}),
    _Row(_LISTS_NONE, _NO_LOGPROBS, _BUSY),
    _Row(CAP, _SETTING, _BUSY | _NEEDS_A_KEY),
    _Row(_WRONG_KEY, _KEY, _BUSY),
    _Row(_MISSING_MODEL, _NO_MODEL, _BUSY | {401, 402}),
    _Row(_UNFINISHED, _CUT, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(_DRAWS_LESS, _SETTING, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(_OVERFLOW, _TOO_LONG, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(SYSTEM_REFUSED, _NO_SYSTEM, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(FIELD_REFUSED, _SETTING, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(_ONE_FORM_ONLY, _SETTING, _BUSY | _NEEDS_A_KEY | {404}),
    _Row(_BY_CHANCE, _BROKEN, _BUSY | _NEEDS_A_KEY | {404}),
)  # fmt: skip
"""The first row whose words are found decides; a server's own errors (5xx) have no words here but
those of a prompt that is too long."""

_BY_STATUS: Final[Mapping[int, Ruling]] = {
    # What no words tell of is a server's own error. TGI says 424 when a shard failed, and a gateway
    # 499 of a request that it gave up.
    **dict.fromkeys((_UNSTATED, 409, 424, 425, 499), _BROKEN),
    **dict.fromkeys((400, 422), _ODD._replace(permanent=True)),
    **dict.fromkeys((401, 407), _KEY),
    402: _CREDIT,
    403: Ruling("unauthorised", UNCLEAR),
    **dict.fromkeys((404, 410), _NO_MODEL),
    **dict.fromkeys((405, 501), _SETTING),
    408: Ruling("timeout"),
    413: _TOO_LONG,
    **dict.fromkeys((429, 529), _OVERLOADED),
}
# Accepted for later (202), or done without a body (204): no answer comes on this connection.
_ACCEPTED: Final = Ruling(
    "unparseable", UNCLEAR, advice="a success without an answer; check base_url and its gateway"
)
_MORE_THAN_A_MINUTES: Final = Ruling("too_long", UNCLEAR, advice="the account's limit is lower")
# llama.cpp and gateways say with status 500 that a prompt is too long; a full queue is another.
_TOO_LARGE_TO_PROCESS: Final = _words(
    r"(?:prompts?|inputs?|requests?|tokens?)\b.{0,60}(?:too (?:large|long)|exceed\w*|longer than)"
    r".{0,60}(?:context|process|max\w*|limit|batch)"
)
_BY_A_SERVER: Final = (
    (_TOO_LARGE_TO_PROCESS, _TOO_LONG),
    (SYSTEM_REFUSED, _NO_SYSTEM),
    (_words(r"requires more (?:system|gpu) memory|failed to load model"), _UNLOADED),
    (_words(r"无可用渠道|no available channel"), _NO_MODEL),
    (_words(r"\bjinja\b|chat template"), _SETTING),
)


def ruling(status: int, words: str, *, may_wait: bool) -> Ruling:
    """Return what a reply is whose status is another than 200.

    Args:
        status: HTTP status, or the code inside of an error body; 0 where that has none.
        words: All that the body says, its type and code included.
        may_wait: Whether the reply says after which time to ask again.
    """
    if 200 <= status < 300:
        return _ACCEPTED
    if 300 <= status < 400:
        return Ruling("redirected", SERVER)
    if status >= 500 and status not in _BY_STATUS:
        may_be = _BY_A_SERVER[status != _OWN_ERROR :]
        return next((found for its, found in may_be if its.search(words)), _BROKEN)
    by_status = _BY_STATUS.get(status, _ODD)
    if status in (413, 429) and _NEVER_WITHIN.search(words):
        return _MORE_THAN_A_MINUTES
    its = _OF_A_MINUTE if status in _OF_MANY else _THROTTLED
    # Gateways say of an empty account, too, when to ask again.
    is_spent = "insufficient_quota" in words
    if (status == 429 and may_wait and not is_spent) or (
        its.search(words) and not _NO_MONEY.search(words)
    ):
        return _OVERLOADED
    found = next(
        (row.ruling for row in _TABLE if status not in row.but and row.words.search(words)),
        by_status,
    )
    if found.scope == ACCOUNT and status in _OF_A_REQUEST:
        # The words may be the prompt's, repeated: that others meet it too has to show.
        return found._replace(scope=UNCLEAR)
    return found


def most_in(words: str) -> int | None:
    """The most alternatives that a server lists, in the words with which it refuses more."""
    match = _MOST.search(words)
    return None if match is None else int(match[1]) - bool(match["excluded"])


def field_in(words: str) -> str:
    """The field of a request that a server refuses, in its words; empty where none is named."""
    match = FIELD_REFUSED.search(words)
    return "" if match is None else match["field1"] or match["field2"]
