"""Names that stand for users: always the same one for the same key, and of no use to who has not got the key."""

from __future__ import annotations

import hmac
import re

DIGITS = 10
_FORM = re.compile(f"u-[0-9a-f]{{{DIGITS}}}")


def pseudonym(key: str, user: str) -> str:
    """``u-`` and the first 10 hex digits of HMAC-SHA256 over the name. What is a pseudonym already, or nobody's name,
    stays as it is."""
    if not user or is_pseudonym(user):
        return user
    return "u-" + hmac.new(key.encode(), user.encode(), "sha256").hexdigest()[:DIGITS]


def is_pseudonym(user: str) -> bool:
    """Whether the name has the form of one."""
    return _FORM.fullmatch(user) is not None
