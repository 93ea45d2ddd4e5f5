"""The provider of a folder computes what BERT computes, and takes window and pooling from the model's files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support_memory.tiny_bert import (
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    POSITIONS,
    VOCABULARY,
    write_json,
    write_tiny_bert,
)
from unstuck_memory.embeddings.providers.folder import open_folder
from unstuck_memory.errors import SettingsError

pytestmark = pytest.mark.anyio

TEXTS = [
    "ann likes tea",
    "bob",
    "the garden of a house , in the garden of the house",
    "ann",
    "greens and coffee",
]
MODES = {
    mode: f"pooling_mode_{mode}"
    for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
}

Tensors = dict[str, NDArray[np.float32]]
Row = list[float]


def plain_bert(tensors: Tensors, ids: list[int]) -> list[Row]:
    """The last hidden states of one text, number by number, as the paper has it."""

    def linear(name: str, row: Row) -> Row:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return [
            sum(float(w) * x for w, x in zip(out, row, strict=True)) + float(b)
            for out, b in zip(weight, bias, strict=True)
        ]

    def norm(name: str, row: Row) -> Row:
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return [
            (x - mean) / deviation * float(w) + float(b) for x, w, b in zip(row, weight, bias, strict=True)
        ]

    def plus(one: Row, other: Row) -> Row:
        return [a + b for a, b in zip(one, other, strict=True)]

    def attention(name: str, rows: list[Row]) -> list[Row]:
        queries, keys, values = (
            [linear(f"{name}.{part}", row) for row in rows] for part in ("query", "key", "value")
        )
        size = HIDDEN // HEADS
        result = [[0.0] * HIDDEN for _ in rows]
        for head in range(HEADS):
            part = range(head * size, (head + 1) * size)
            for index, query in enumerate(queries):
                scores = [math.exp(sum(query[n] * key[n] for n in part) / math.sqrt(size)) for key in keys]
                for n in part:
                    seen = sum(score * value[n] for score, value in zip(scores, values, strict=True))
                    result[index][n] = seen / sum(scores)
        return result

    words, positions, types = (
        tensors[f"embeddings.{kind}_embeddings.weight"].astype(float).tolist()
        for kind in ("word", "position", "token_type")
    )
    rows = [
        norm("embeddings.LayerNorm", plus(plus(words[each], positions[place]), types[0]))
        for place, each in enumerate(ids)
    ]
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        attended = [
            linear(f"{layer}.attention.output.dense", row)
            for row in attention(f"{layer}.attention.self", rows)
        ]
        rows = [
            norm(f"{layer}.attention.output.LayerNorm", plus(a, b))
            for a, b in zip(attended, rows, strict=True)
        ]
        for index, row in enumerate(rows):
            inner = [
                x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in linear(f"{layer}.intermediate.dense", row)
            ]
            assert len(inner) == INNER
            rows[index] = norm(f"{layer}.output.LayerNorm", plus(linear(f"{layer}.output.dense", inner), row))
    return rows


def expected(tensors: Tensors, words: list[str], how: str = "mean_tokens") -> NDArray[np.float64]:
    hidden = plain_bert(tensors, [VOCABULARY[word] for word in ("[CLS]", *words, "[SEP]")])
    columns = list(zip(*hidden, strict=True))
    vector = np.array(
        hidden[0] if how == "cls_token"
        else [max(column) for column in columns] if how == "max_tokens"
        else [sum(column) for column in columns]
    )  # fmt: skip
    return np.asarray(vector / np.linalg.norm(vector))


def words_of(text: str) -> list[str]:
    return text.replace("greens", "green ##s").split()


@pytest.mark.parametrize("how", MODES)
async def test_a_batch_of_texts_has_the_vectors_that_bert_gives_them_one_by_one(
    tmp_path: Path, how: str
) -> None:
    tensors = write_tiny_bert(tmp_path)
    write_json(
        tmp_path / "1_Pooling/config.json",
        {MODES[mode]: mode == how for mode in MODES} | {"include_prompt": True},
    )
    vectors = await open_folder(tmp_path).embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), HIDDEN)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(tensors, words_of(text), how), atol=2e-5)


async def test_many_texts_of_all_lengths_come_back_in_order(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path)
    provider = open_folder(tmp_path)
    texts = [" ".join(["tea", "ann", "bob"] * (number * 7 % 12)) + " coffee" for number in range(200)]
    together = await provider.embed(texts)
    alone = np.concatenate([await provider.embed([text]) for text in texts[:24]])
    np.testing.assert_allclose(together[:24], alone, atol=1e-5)
    assert (await provider.embed([])).shape == (0, HIDDEN)


async def test_tensors_with_the_prefix_of_a_larger_model_are_the_same_model(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path / "plain")
    write_tiny_bert(tmp_path / "prefixed", prefix="bert.")
    one, other = [await open_folder(tmp_path / name).embed(TEXTS) for name in ("plain", "prefixed")]
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("sentences", "window"), [(None, POSITIONS), (16, 16), (400, POSITIONS)])
async def test_a_text_is_cut_at_the_models_window_and_not_where_the_tokenizers_file_cuts(
    tmp_path: Path, sentences: int | None, window: int
) -> None:
    tensors = write_tiny_bert(tmp_path)
    if sentences:
        write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": sentences})
    provider = open_folder(tmp_path)
    words = ["tea", "coffee", "bob"] * 30
    (vector,) = await provider.embed([" ".join(words)])
    np.testing.assert_allclose(vector, expected(tensors, words[: window - 2]), atol=2e-5)
    assert provider.cut(" ".join(words)) == " ".join(words[: window - 2])
    assert all(len(piece.split()) <= window - 2 for piece in provider.pieces("ann ", " ".join(words)))


async def test_two_folders_are_two_models_whatever_differs(tmp_path: Path) -> None:
    variants: list[dict[str, Any]] = [{}, {"seed": 2}, {"config": {"layer_norm_eps": 1e-6}}]
    names = []
    for number, variant in enumerate(variants):
        write_tiny_bert(tmp_path / str(number) / "model", **variant)
        provider = open_folder(tmp_path / str(number) / "model")
        assert (await provider.model()).name == provider.name
        names.append(provider.name)
    write_json(tmp_path / "0/model/1_Pooling/config.json", {"pooling_mode_cls_token": True})
    names.append(open_folder(tmp_path / "0/model").name)
    write_tiny_bert(tmp_path / "other")
    names.append(open_folder(tmp_path / "other").name)
    assert len(set(names)) == 5
    assert [name.partition("@")[0] for name in names] == ["model"] * 4 + ["other"]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_without_a_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    write_tiny_bert(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(SettingsError, match=rf"has no {name}: name a folder with [^\n]+$"):
        open_folder(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
async def test_a_damaged_file_is_one_line_that_names_the_folder(tmp_path: Path, name: str) -> None:
    write_tiny_bert(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(SettingsError) as caught:
        await open_folder(tmp_path).model()
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        (
            "config.json",
            {"model_type": "roberta"},
            "asks for roberta, gelu, absolute: it must be bert, gelu, absolute",
        ),
        ("config.json", {"hidden_act": "relu"}, "asks for bert, relu, absolute"),
        (
            "config.json",
            {"num_hidden_layers": 3},
            "has no tensor 'encoder.layer.2.attention.self.query.weight'",
        ),
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "asks for Dense"),
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "asks for pooling_mode_lasttoken"),
        ("1_Pooling/config.json", {}, "asks for nothing"),
    ],
)
async def test_a_model_that_would_be_computed_wrongly_is_refused(
    tmp_path: Path, file: str, content: Any, why: str
) -> None:
    write_tiny_bert(tmp_path, config=content if file == "config.json" else None)
    if file != "config.json":
        write_json(tmp_path / file, content)
    with pytest.raises(SettingsError, match=why):
        await open_folder(tmp_path).embed(["ann"])
