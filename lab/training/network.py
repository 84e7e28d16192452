"""The encoder with both heads, in torch: only for training.

The layers have the names of BERT's pretrained file.
"""

import torch
from labels import LABELS, TOPICS
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, INNER = 384, 6, 12, 1536
_EPSILON = 1e-12


class Layer(nn.Module):
    """One transformer block, post-norm."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.attended_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.inner = nn.Linear(WIDTH, INNER)
        self.outer = nn.Linear(INNER, WIDTH)
        self.outer_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the block's output, ``[b, s, WIDTH]``."""
        b, s, _ = x.shape
        q, k, v = (
            part(x).view(b, s, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        seen = self.attended(seen.transpose(1, 2).reshape(b, s, WIDTH))
        x = self.attended_norm(x + self.dropout(seen))
        return self.outer_norm(
            x + self.dropout(self.outer(functional.gelu(self.inner(x))))
        )


class Guard(nn.Module):
    """Words to entity labels, texts to topics.

    Args:
        pieces: the vocabulary's size; BERT's by default.
        dropout: in every block and before the heads.
    """

    def __init__(self, pieces: int = 30522, dropout: float = 0.1) -> None:
        super().__init__()
        self.words = nn.Embedding(pieces, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.embedded_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(LAYERS))
        self.dropout = nn.Dropout(dropout)
        self.entities = nn.Linear(WIDTH, len(LABELS))
        self.topics = nn.Linear(WIDTH, len(TOPICS))

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return entity logits ``[b, s, L]`` and topic logits ``[b, T]``."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.embedded_norm(self.words(ids) + self.positions(places))
        x = self.dropout(x)
        seen = mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, seen)
        weights = mask[..., None].to(x.dtype)
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.entities(self.dropout(x)), self.topics(self.dropout(mean))


_NAMES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attended_norm",
    "intermediate.dense": "inner",
    "output.dense": "outer",
    "output.LayerNorm": "outer_norm",
}


def pretrained(weights: dict[str, Tensor], guard: Guard) -> None:
    """Copy the first pretrained layers into ``guard``; the heads stay random."""
    state = {
        "words.weight": weights["embeddings.word_embeddings.weight"],
        "positions.weight": weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0],
        "embedded_norm.weight": weights["embeddings.LayerNorm.weight"],
        "embedded_norm.bias": weights["embeddings.LayerNorm.bias"],
    }
    for layer in range(LAYERS):
        for theirs, ours in _NAMES.items():
            for part in ("weight", "bias"):
                name = f"encoder.layer.{layer}.{theirs}.{part}"
                state[f"layers.{layer}.{ours}.{part}"] = weights[name]
    missing = guard.load_state_dict(state, strict=False).missing_keys
    if any(not name.startswith(("entities.", "topics.")) for name in missing):
        raise ValueError("the pretrained file lacks layers")
