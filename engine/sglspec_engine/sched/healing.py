"""The border between a text and what is generated after it.

A text may end inside of what the model would write as one token: in the middle of a word, with a space, with a colon
before a slash. Going on behind its last token then asks for something that the model has hardly ever seen. So the last
tokens are taken back, and the first ones that are generated have to spell their bytes again, whatever follows in them
("token healing" in guidance, 2023). This works on bytes, so a border inside a character's bytes needs no care.

Where the model chooses the very tokens that stood there, which is the rule, nothing has changed: they were computed
together with the prompt, as rows of the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sglspec_engine.constrain import Constraint
from sglspec_engine.sample import Bools, Floats
from sglspec_engine.text.tokens import Vocabulary

MAX_TOKENS = 4
"""Tokens that are taken back at most."""
_ASKED = 256
"""Tokens that the constraint is asked about one by one; those that are less likely are left out."""


def loose_tokens(vocabulary: Vocabulary, prompt: Sequence[int], tail: bytes) -> int:
    """How many tokens at the end of `prompt` to take back: as many as together begin some longer token.

    tail: the bytes of the text that the prompt ends with and that may be spelled in another way. One token stays.
    """
    found, data = 0, b""
    for count in range(1, min(MAX_TOKENS, len(prompt) - 1) + 1):
        own = vocabulary.token_bytes[prompt[-count]]
        data = own + data
        if not own or not tail.endswith(data):
            break
        longer = vocabulary.beginning_with(data)
        if len(longer) and vocabulary.token_bytes[longer[-1]] != data and not 0x80 <= data[0] < 0xC0:
            found = count  # on whole characters, so that what was taken back is text
    return found


class Border:
    """What the next tokens have to spell before the generated text begins."""

    def __init__(self, vocabulary: Vocabulary, owed: bytes) -> None:
        self._vocabulary = vocabulary
        self.owed = owed

    def take(self, data: bytes) -> None:
        """A token with these bytes was chosen."""
        self.owed = self.owed[len(data) :]

    def allowed(self, constraint: Constraint | None, logits: Floats) -> Bools:
        """Which ids may come next: [vocabulary size]. Tokens that spell a part of what is owed, and those that spell
        all of it and then what the constraint allows. Never none: what stood there is among them. logits: [at least
        vocabulary size]."""
        vocabulary, owed = self._vocabulary, self.owed
        mask = np.zeros(vocabulary.size, dtype=np.bool_)
        for length in range(1, len(owed)):
            mask[vocabulary.spelled(owed[:length])] = True
        mask[vocabulary.beginning_with(owed)] = True
        if constraint is not None:
            self._constrain(mask, constraint, logits)
        return mask

    def beyond(self, id: int) -> list[int] | None:
        """Ids that spell what a token adds to the generated text; None where the vocabulary cannot say."""
        return self._vocabulary.spell(self._vocabulary.token_bytes[id][len(self.owed) :])

    def _constrain(self, mask: Bools, constraint: Constraint, logits: Floats) -> None:
        """Take out the tokens that begin the generated text with what the constraint does not allow."""
        now = constraint.allowed()
        found = self._vocabulary.beyond(self.owed)
        mask[found.ids] = (found.rest >= 0) & now[found.rest]
        others = found.ids[(found.rest < 0) & ((found.first < 0) | now[found.first])]
        for id in others[np.argsort(-logits[others], kind="stable")][:_ASKED].tolist():
            added = self.beyond(id)
            mask[id] = added is not None and bool(now[added[0]]) and constraint.accepts(added)
