"""A small random model for tests: 288 byte tokens, made on the spot."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

WIDTH = 64
LAYERS = 2
HEADS = 4
KV_HEADS = 2
FEED_FORWARD = 128
TRAINED_CONTEXT = 2048
VOCABULARY = 288
SEED = 7

BOS, EOS = 1, 2
FIRST_BYTE = 3

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_byte_model(
    path: Path,
    *,
    merges: Sequence[str] = (),
    marks: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
    split_count: int = 0,
    layers: int = LAYERS,
    head_width: int = WIDTH // HEADS,
) -> Path:
    """Write the model and return its path.

    The weights depend on numpy's generator: compare properties, not digests.

    Args:
        path: the GGUF file to write.
        merges: plain tokens of the vocabulary beyond single bytes.
        marks: tokens that are no control tokens, and found in any text all the same.
        chat_template: empty writes none.
        split_count: says that the model is one of so many files.
        layers: how many.
        head_width: numbers of one head; both say how much memory a token takes.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("byte model of random weights")
    _add_shape(writer, layers, head_width)
    _add_vocabulary(writer, merges, marks)
    if chat_template:
        writer.add_chat_template(chat_template)
    if split_count:
        writer.add_uint16("split.count", split_count)
    _add_weights(writer, layers, head_width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def make_adapter(
    path: Path, *, width: int = WIDTH, architecture: str = "llama"
) -> Path:
    """Write a LoRA adapter that changes the byte model's answers; return its path."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    generator = np.random.default_rng(SEED + 1)
    for layer in range(LAYERS):
        for part, shape in (("a", (2, width)), ("b", (width, 2))):
            writer.add_tensor(
                f"blk.{layer}.attn_output.weight.lora_{part}",
                generator.standard_normal(shape, np.float32),
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256_of(path: Path) -> str:
    """Return a file's digest, hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _add_shape(writer: gguf.GGUFWriter, layers: int, head_width: int) -> None:
    writer.add_context_length(TRAINED_CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(head_width)
    writer.add_value_length(head_width)
    writer.add_rope_dimension_count(head_width)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _add_vocabulary(
    writer: gguf.GGUFWriter, merges: Sequence[str], marks: Sequence[str]
) -> None:
    kinds = gguf.TokenType
    tokens = [
        ("<unk>", kinds.UNKNOWN),
        ("<s>", kinds.CONTROL),
        ("</s>", kinds.CONTROL),
        *((f"<0x{value:02X}>", kinds.BYTE) for value in range(256)),
        # The vocabulary's word for a space; the library demands it.
        ("\u2581", kinds.NORMAL),
        ("<|im_start|>", kinds.CONTROL),
        ("<|im_end|>", kinds.CONTROL),
        *((text, kinds.NORMAL) for text in merges),
        *((text, kinds.USER_DEFINED) for text in marks),
    ]
    missing = VOCABULARY - len(tokens)
    tokens += [(f"<pad{number}>", kinds.CONTROL) for number in range(missing)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def _add_weights(writer: gguf.GGUFWriter, layers: int, head_width: int) -> None:
    generator = np.random.default_rng(SEED)

    def random(*shape: int) -> npt.NDArray[np.float32]:
        return generator.standard_normal(shape, np.float32) * np.float32(
            shape[-1] ** -0.5
        )

    def ones() -> npt.NDArray[np.float32]:
        return np.ones(WIDTH, np.float32)

    all_heads, kv_width = head_width * HEADS, head_width * KV_HEADS
    writer.add_tensor("token_embd.weight", random(VOCABULARY, WIDTH) * 4)
    writer.add_tensor("output_norm.weight", ones())
    output = random(VOCABULARY, WIDTH) * 3
    # Markers get the middling logit 0: answers hardly ever end by themselves.
    output[:FIRST_BYTE] = output[FIRST_BYTE + 256 :] = 0
    writer.add_tensor("output.weight", output)
    shapes = {
        "attn_q": (all_heads, WIDTH),
        "attn_k": (kv_width, WIDTH),
        "attn_v": (kv_width, WIDTH),
        "attn_output": (WIDTH, all_heads),
        "ffn_gate": (FEED_FORWARD, WIDTH),
        "ffn_up": (FEED_FORWARD, WIDTH),
        "ffn_down": (WIDTH, FEED_FORWARD),
    }
    for layer in range(layers):
        block = f"blk.{layer}."
        for name, shape in shapes.items():
            writer.add_tensor(f"{block}{name}.weight", random(*shape))
        writer.add_tensor(f"{block}attn_norm.weight", ones())
        writer.add_tensor(f"{block}ffn_norm.weight", ones())
