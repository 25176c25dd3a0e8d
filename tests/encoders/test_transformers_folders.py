"""Folders of transformers: the family is found from the files, and what cannot be audited is refused."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from plumbline.checkpoints.addresses import parse_address
from plumbline.checkpoints.folders import (
    _LEFT_OVER,
    _PROCESSORS,
    _REFUSED,
    _TOKENIZERS,
    TRANSFORMERS_ATTENTION,
    model_files,
    read_configuration,
    refuse_code,
    require_complete,
)
from plumbline.checkpoints.loading import (
    built_without_numbers,
    require_modest_strips,
    require_sizes,
    safetensors_alone,
    weights_limited,
)
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.digests import digest_bytes
from plumbline.encoders import folders
from plumbline.encoders.folders import locate
from plumbline.errors import CheckpointError

FILES = ("model.safetensors", "preprocessor_config.json", "tokenizer.json")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text("{}")
    write(folder, "config.json", {"model_type": "clip"})
    return folder


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content))


def located(folder, *, family=None):
    address = parse_address(f"local-dir:{folder}", project=folder.parent)
    return locate(address, fetched=folder.parent / "fetched", encoder="e", family=family)


@pytest.mark.parametrize("family", ["clip", "align", "bridgetower", "owlv2", "owlvit"])
def test_the_model_type_says_the_family(folder, family):
    write(folder, "config.json", {"model_type": family})
    files = located(folder)
    assert files.family == family and files.weights == (folder / "model.safetensors",)
    assert files.weights_sha256 == digest_bytes(b"{}")


def test_a_folder_of_both_libraries_is_open_clips_unless_the_audit_says_otherwise(folder):
    (folder / "open_clip_config.json").write_text("{}")
    assert located(folder).family == "open_clip"
    assert located(folder, family="clip").family == "clip"


@pytest.mark.parametrize("model_type", ["llava", None])
def test_an_unknown_family_is_refused_with_the_known_ones(folder, model_type):
    write(folder, "config.json", {"model_type": model_type} if model_type else {})
    with pytest.raises(
        CheckpointError, match=r"no family that can be audited[\s\S]*clip, align, altclip[\s\S]*owlv2"
    ) as refused:
        located(folder)
    assert ("name it under `lvlms`" in str(refused.value)) is (model_type == "llava")


@pytest.mark.parametrize("family", ["align", "owlvit", "bridgetower", "open_clip"])
def test_a_wrong_family_in_the_audit_file_is_refused(folder, family):
    with pytest.raises(CheckpointError, match=r"not of the family[\s\S]*correct `family`"):
        located(folder, family=family)


def test_a_family_of_transformers_on_a_folder_of_open_clip_alone_is_refused(folder):
    (folder / "config.json").rename(folder / "open_clip_config.json")
    with pytest.raises(CheckpointError, match=r"not of the family CLIP \(transformers\)[\s\S]*no config\.json"):
        located(folder, family="clip")


def test_an_unheard_of_family_is_refused_with_the_known_ones(folder):
    with pytest.raises(CheckpointError, match=r"no such family[\s\S]*vilt[\s\S]*open_clip, clip, align"):
        located(folder, family="vilt")


def test_owlv2_files_are_read_as_owlvit_only_when_asked(folder):
    write(folder, "config.json", {"model_type": "owlv2"})
    first, second = located(folder), located(folder, family="owlvit")
    assert (first.family, second.family) == ("owlv2", "owlvit") and first.digest == second.digest


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("key", ["auto_map", "trust_remote_code"])
@pytest.mark.parametrize("nested", [False, True])
def test_code_of_the_checkpoints_own_is_refused(folder, name, key, nested):
    asks = {key: {"AutoModel": "modeling.Model"}}
    write(folder, name, {"model_type": "clip", **({"text_config": asks} if nested else asks)})
    with pytest.raises(CheckpointError, match=rf"code of its own[\s\S]*{name}[\s\S]*{key}"):
        located(folder)


ELSEWHERE = ["someone/kernel", "flash_attention_9", {"": "someone/kernel"}, ["sdpa"], True]
ATTENTION, EXPERTS = "_attn_implementation", "_experts_implementation"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("attn_implementation", ATTENTION, EXPERTS) for value in ELSEWHERE),
        (EXPERTS, "flash_attention_2"),
        (EXPERTS, "deepgemm"),
    ],
)
@pytest.mark.parametrize("parts", [(), ("text_config",), ("vision_config", "inner")])
def test_attention_and_experts_from_elsewhere_are_refused(folder, key, value, parts):
    asks = {key: value}
    for part in reversed(parts):
        asks = {part: asks}
    write(folder, "config.json", {"model_type": "clip", **asks})
    with pytest.raises(CheckpointError, match=rf"of its own[\s\S]*config\.json[\s\S]*{key}"):
        located(folder)


@pytest.mark.parametrize("value", TRANSFORMERS_ATTENTION)
def test_attention_of_transformers_own_may_be_named(folder, value):
    part = {"_attn_implementation": value}
    write(folder, "config.json", {"model_type": "clip", "attn_implementation": value, "text_config": part})
    assert located(folder).family == "clip"


@pytest.mark.slow  # it reads every model of transformers
def test_the_names_of_attention_are_those_of_this_transformers():
    declare_missing_operators()
    from transformers.modeling_utils import AttentionInterface

    assert set(TRANSFORMERS_ATTENTION) == {"eager", *AttentionInterface._global_mapping}


def test_attention_that_nothing_overrules_must_need_nothing_but_torch(folder):
    """As in the text model of an open_clip checkpoint, which open_clip loads by its configuration alone."""
    write(folder, "config.json", {"_attn_implementation": "flash_attention_2"})
    with pytest.raises(CheckpointError, match="attention of its own"):
        refuse_code(folder)
    write(folder, "config.json", {"_attn_implementation": "sdpa"})
    refuse_code(folder)


@pytest.mark.parametrize("key", list(_REFUSED))
@pytest.mark.parametrize("value", [None, False, {}, []])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_setting_that_asks_for_nothing_is_harmless(folder, key, value, name):
    write(folder, name, {"model_type": "clip", key: value, "text_config": {key: value}})
    assert located(folder).family == "clip"


def test_settings_nested_without_end_are_a_clear_error(folder):
    (folder / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(CheckpointError, match=r"nested too deeply[\s\S]*config\.json"):
        located(folder)


def test_code_is_found_as_deep_as_json_is_read(folder):
    asks = '{"a":' * 900 + '{"auto_map": "x.Y"}' + "}" * 900
    (folder / "config.json").write_text('{"model_type": "clip", "deep": ' + asks + "}")
    with pytest.raises(CheckpointError, match=r"code of its own[\s\S]*auto_map"):
        located(folder)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("audio_tokenizer", {"audio_tokenizer_class": "AutoModel"}, "another checkpoint"),
        ("model_args", {"checkpoint_path": "/elsewhere/side.pt"}, "a model in another file"),
        ("backbone_kwargs", {"pretrained_cfg": {"file": "side.pt"}}, "a model in another file"),
        ("architecture", "hf-hub:someone/model", "a model in another file"),
        ("backbone", "local-dir:/elsewhere", "a model in another file"),
        ("some_name_of_tomorrow", "Local-Dir:elsewhere", "a model in another file"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "processor_config.json"])
def test_a_second_checkpoint_is_refused(folder, key, value, what, name):
    write(folder, name, {"model_type": "clip", "vision_config": {key: value}})
    with pytest.raises(CheckpointError, match=rf"{what}[\s\S]*{key}"):
        located(folder)
    write(
        folder, name, {"model_type": "clip", "vision_config": {"architecture": "resnet10t", "model_args": {"depth": 2}}}
    )
    assert located(folder).family == "clip"


def test_a_file_that_leads_to_another_checkpoint_is_refused(folder):
    write(folder, "audio_tokenizer_config.json", {"audio_tokenizer_name_or_path": "/elsewhere"})
    with pytest.raises(CheckpointError, match=r"asks for another checkpoint[\s\S]*audio_tokenizer_config\.json"):
        located(folder)


def test_shards_that_would_be_loaded_in_place_of_the_digested_weights_are_refused(folder):
    (folder / "shard-00001-model-00001-of-00001.safetensors").write_text("{}")
    with pytest.raises(CheckpointError, match=r"shards of a distributed training[\s\S]*shard-00001"):
        located(folder)


def test_tokenizers_in_folders_below_are_digested_and_may_not_ask_for_code(folder):
    before = located(folder).digest
    (folder / "protein_tokenizer").mkdir()
    write(folder, "protein_tokenizer/vocab.json", {"a": 0})
    assert located(folder).digest != before
    write(folder, "protein_tokenizer/tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}})
    with pytest.raises(CheckpointError, match=r"code of its own[\s\S]*protein_tokenizer"):
        located(folder)


def test_every_vocabulary_that_transformers_reads_by_name_is_digested(folder):
    import transformers

    sources = [path.read_text("utf-8") for path in Path(transformers.__file__).parent.glob("**/tokenization_*.py")]
    tables = [
        table for source in sources for table in re.findall(r"(?i)vocab_files_names = \{(.*?)\}", source, re.DOTALL)
    ]
    names = {name for table in tables for name in re.findall(r': "([^"]+)"', table)}
    assert {"vocab.json", "merges.txt", "spiece.model", "source.spm", "prophetnet.tokenizer"} <= names
    for name in names:
        (folder / name).write_text("{}")
    assert names <= dict(located(folder).deciding).keys()


def test_while_a_checkpoint_is_read_no_pickle_is_opened_and_no_code_of_it_is_run(tmp_path):
    import torch
    from transformers import AutoConfig, dynamic_module_utils

    torch.save({}, tmp_path / "side.pt")
    asked_code = tmp_path / "own"
    asked_code.mkdir()
    write(asked_code, "config.json", {"model_type": "own", "auto_map": {"AutoConfig": "evil.Config"}})
    (asked_code / "evil.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')")
    with safetensors_alone():
        with pytest.raises(CheckpointError, match=r"a pickle[\s\S]*side\.pt"):
            torch.load(tmp_path / "side.pt", weights_only=True)
        with pytest.raises(CheckpointError):
            torch.serialization.load(tmp_path / "side.pt", weights_only=True)
        with pytest.raises((CheckpointError, ValueError)):
            AutoConfig.from_pretrained(asked_code)
        import transformers.models.auto.auto_factory as imported_meanwhile
    assert imported_meanwhile.resolve_trust_remote_code is dynamic_module_utils.resolve_trust_remote_code
    assert dynamic_module_utils.resolve_trust_remote_code(True, "own", True, True) is True  # a notebook's own
    assert torch.load(tmp_path / "side.pt", weights_only=True) == {} and not (tmp_path / "RAN").exists()


def test_a_model_much_larger_than_its_files_is_refused_before_it_takes_memory(tmp_path):
    import torch
    from safetensors.torch import save_file

    for held, name in ((torch.zeros(4, 4), "model"), (torch.zeros(0), "none")):
        save_file({"bias": held}, tmp_path / f"{name}.safetensors")

    def require(numbers: int, *, in_a_buffer: bool = False, weights: str = "model") -> None:
        wide = torch.nn.Linear(4 if in_a_buffer else numbers, 1, bias=False, device="meta")
        wide.register_buffer("mask", torch.empty(numbers, device="meta") if in_a_buffer else None, persistent=False)
        require_sizes(
            tmp_path,
            [tmp_path / f"{weights}.safetensors"],
            lambda: wide,
            configuration="config.json",
            kept=tmp_path / f"kept-{numbers}-{in_a_buffer}",
        )

    for in_a_buffer in (False, True):
        require(1 << 20, in_a_buffer=in_a_buffer)
        for weights in ("model", "none"):
            with pytest.raises(CheckpointError, match="much larger than its weights"):
                require(1 << 30, in_a_buffer=in_a_buffer, weights=weights)


def test_a_model_that_cannot_be_built_without_numbers_takes_no_more_memory_than_its_files_need(tmp_path):
    save_file({"bias": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    with weights_limited([tmp_path / "model.safetensors"]):
        assert np.ones(1 << 27).size, "a gigabyte is nothing"
        with pytest.raises(MemoryError):
            np.ones(6 << 27)


def test_an_image_processor_that_makes_something_huge_of_an_image_is_refused(tmp_path):
    import numpy as np

    def tiles(picture):
        if picture.width > picture.height:
            return np.empty(5 << 30, dtype=np.uint8)
        raise ValueError("of such an image it takes nothing")

    with pytest.raises(CheckpointError, match=r"more of a small image than any model needs[\s\S]*4 GiB"):
        require_modest_strips(tiles, tmp_path)
    require_modest_strips(np.asarray, tmp_path)
    assert np.empty(5 << 30, dtype=np.uint8).size, "the limit is of the look alone"


def test_files_larger_than_any_of_their_kind_are_not_read(tmp_path):
    for name, size, why in (("vocab.json", 65 << 20, "larger than any tokenizer"), ("config.json", 17 << 20, "larger")):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        with (folder / name).open("wb") as file:
            file.write(b'{"a": "')
            file.truncate(size)  # takes no room on the disk
        with pytest.raises(CheckpointError, match=why):
            model_files(folder)
            read_configuration(folder / name)
    for name in ("chat_template.jinja", "additional_chat_templates/tool_use.jinja"):
        folder = tmp_path / name.partition("/")[0].partition(".")[0]
        (folder / name).parent.mkdir(parents=True)
        with (folder / name).open("wb") as file:
            file.truncate(17 << 20)
        with pytest.raises(CheckpointError, match=r"larger than any[\s\S]*17,825,792 bytes"):
            model_files(folder)
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="no plain file"):
        read_configuration(tmp_path / "zero.json")


@pytest.mark.parametrize(
    "asks",
    [
        {"font": "evil.ttf"}, {"font": "../elsewhere.ttf"}, {"overlay": "../elsewhere.ttf"},
        {"media_proc": {"overlays": ["beside.ttf"]}},
    ],
)  # fmt: skip
def test_no_setting_of_a_processor_names_a_file_of_the_folder_or_beside_it(tmp_path, asks):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (tmp_path / "elsewhere.ttf").write_bytes(b"font")
    (folder / "beside.ttf").write_bytes(b"font")
    write(folder, "video_preprocessor_config.json", asks)
    with pytest.raises(CheckpointError, match=r"names a file of its tokenizer or processor[\s\S]*ttf"):
        refuse_code(folder)
    write(folder, "video_preprocessor_config.json", {"font": None, "overlay": "none of these"})
    refuse_code(folder)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("tokenizer_config.json", "tokenizer_class", "LlamaModel"),
        ("config.json", "tokenizer_class", "CLIPModel"),
        ("tokenizer_config.json", "tokenizer_class", "RagTokenizer"),
        ("tokenizer_config.json", "tokenizer_class", ["LlamaModel"]),
        ("preprocessor_config.json", "image_processor_type", "RagRetriever"),
        ("preprocessor_config.json", "feature_extractor_type", "LlamaForCausalLM"),
        ("processor_config.json", "processor_class", "LlamaModel"),
        ("video_preprocessor_config.json", "video_processor_type", "AutoModel"),
    ],
)
def test_no_class_but_a_tokenizer_or_processor_is_named(folder, name, key, value):
    """transformers would build the model of that name, as large as the configuration says."""
    content = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
    for asks in ({key: value}, {"part": [{key: value}]}):
        write(folder, name, content | asks)
        with pytest.raises(CheckpointError, match=rf"no tokenizer or processor[\s\S]*{name}[\s\S]*{key}"):
            located(folder)
    write(folder, name, content | {key: None})
    assert located(folder).family == "clip"


@pytest.mark.slow  # it reads every module of transformers
def test_the_classes_that_may_be_named_are_all_tokenizers_and_processors_of_this_transformers_and_no_others():
    declare_missing_operators()
    import transformers
    from transformers.image_processing_base import ImageProcessingMixin
    from transformers.models.auto import feature_extraction_auto, image_processing_auto, processing_auto
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES
    from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

    bases = transformers.FeatureExtractionMixin, transformers.ProcessorMixin, ImageProcessingMixin
    of = ((_TOKENIZERS, transformers.PreTrainedTokenizerBase), (_PROCESSORS, bases))
    seen = Counter()
    for name in dir(transformers):
        try:
            found = getattr(transformers, name)
            loads = isinstance(found, type) and hasattr(found, "from_pretrained")
        except ImportError:  # of a library that is not installed
            continue
        for pattern, base in of:
            if loads and pattern.fullmatch(name):
                assert issubclass(found, base), name
                seen[pattern] += 1
    assert min(seen.values()) > 50
    assert {name for name in TOKENIZER_MAPPING_NAMES.values() if name and not _TOKENIZERS.fullmatch(name)} == {
        "RagTokenizer"
    }
    named = [
        *image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES.values(), *VIDEO_PROCESSOR_MAPPING_NAMES.values(),
        *processing_auto.PROCESSOR_MAPPING_NAMES.values(),
        *feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING_NAMES.values(),
    ]  # fmt: skip
    for each in named:
        for name in each.values() if isinstance(each, dict) else [each]:
            assert name is None or _PROCESSORS.fullmatch(name), name


@pytest.mark.parametrize("setting", [{"max_num_patches": 20_000}, {"max_image_tiles": 600}, {"min_patches": 20_000}])
def test_more_patches_or_tiles_than_any_model_needs_are_refused_by_name(tmp_path, setting):
    write(tmp_path, "preprocessor_config.json", setting)
    ((name, number),) = setting.items()
    with pytest.raises(CheckpointError, match=rf"more than any model needs[\s\S]*{name}: {number}"):
        refuse_code(tmp_path)


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        *(("tokenizer_config.json", {key: "/elsewhere/file"}) for key in ("vocab", "merges", "gguf_file", "spm_file")),
        *((name, {"normalizer_file": "n.json"}) for name in ("tokenizer_config.json", "special_tokens_map.json")),
        ("tokenizer_config.json", {"init_inputs": ["v.json", "m.txt"]}),
        ("tokenizer_config.json", {"sudachi_kwargs": {"sudachi_resource_dir": "/elsewhere"}}),
        ("tokenizer_config.json", {"mecab_kwargs": {"mecab_option": "-d /elsewhere"}}),
        # Read after the folder's own files: it would replace them.
        ("special_tokens_map.json", {"tokenizer_file": "/elsewhere/tokenizer.json"}),
        ("special_tokens_map.json", {"name_or_path": "/elsewhere"}),
        ("preprocessor_config.json", {"class_info_file": "c.json", "repo_path": "/elsewhere"}),
        ("processor_config.json", {"speaker_embeddings": {"repo_or_path": "/elsewhere"}}),
    ],
)
def test_a_file_of_a_tokenizer_or_processor_is_found_by_its_own_name_alone(folder, name, asks):
    write(folder, name, asks)
    with pytest.raises(CheckpointError, match=rf"only (those of its folder are|transformers' own)[\s\S]*{name}"):
        located(folder)


@pytest.mark.parametrize("key", ["vocab_file", "merges_file", "anything"])
def test_a_setting_of_a_tokenizer_that_is_the_path_of_a_file_on_this_disk_is_refused(folder, tmp_path, key):
    elsewhere = tmp_path / "elsewhere.txt"
    write(folder, "tokenizer_config.json", {key: str(elsewhere)})
    assert located(folder).family == "clip"
    elsewhere.write_text("word")
    with pytest.raises(CheckpointError, match=rf"only those of its folder are read[\s\S]*{key}: {elsewhere}"):
        located(folder)


def test_what_older_releases_left_in_the_settings_of_tokenizers_is_accepted(folder, tmp_path):
    here = tmp_path / "tokenizer.json"
    here.write_text("{}")
    write(
        folder,
        "tokenizer_config.json",
        {
            "name_or_path": "openai/clip-vit-base-patch32",
            "special_tokens_map_file": "/nowhere/transformers/18a.d3c",
            "tokenizer_file": str(here),
            "vocab_file": None,
            "merges_file": "/nowhere/merges.txt",
            "init_inputs": [],
            "unk_token": {"__type": "AddedToken", "content": "<|endoftext|>"},
            "eos_token": "</s>",
            "chat_template": "{{ messages }}" * 1_000,
            "vocab": {"a": 0},
            "merges": ["a b"],
        },
    )
    write(folder, "special_tokens_map.json", {"eos_token": "</s>", "additional_special_tokens": ["</s>"]})
    write(folder, "preprocessor_config.json", {"_name_or_path": "google/siglip-base-patch16-224"})
    assert located(folder).family == "clip"


def test_what_is_left_of_files_in_the_settings_of_a_tokenizer_changes_nothing_of_it(tmp_path):
    """transformers' side of what is accepted: its tokenizers open none of these, or the folder's own file."""
    declare_missing_operators()
    import transformers

    own, other = tmp_path / "own", tmp_path / "other"
    for place, tokens in ((own, ["a", "b", "[UNK]"]), (other, ["b", "a", "[UNK]"])):
        vocabulary = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(place)
    settings = json.loads((own / "tokenizer_config.json").read_text())
    named = {"vocab_file": "vocab.txt", "merges_file": "merges.txt"} | dict.fromkeys(_LEFT_OVER, "tokenizer.json")
    write(own, "tokenizer_config.json", settings | {key: str(other / name) for key, name in named.items()})
    tokenizer = transformers.AutoTokenizer.from_pretrained(own, local_files_only=True)
    assert tokenizer.convert_tokens_to_ids(["a", "b"]) == [0, 1]


@pytest.mark.parametrize("library", ["python", "numpy", "torch"])
def test_a_configuration_that_takes_all_memory_is_refused_in_words_each_time(tmp_path, library):
    import torch

    save_file({"bias": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    # Positions are computed while some models are built, whatever device is asked for.
    tables = {
        "python": lambda: b"a" * (6 << 30),
        "numpy": lambda: np.ones(6 << 27),
        "torch": lambda: torch.ones(6 << 28, device="cpu"),
    }

    def takes_all():
        return built_without_numbers(tables[library])

    for _ in range(2):
        with pytest.raises(CheckpointError, match="takes more memory than it may while it is built"):
            require_sizes(
                tmp_path,
                [tmp_path / "model.safetensors"],
                takes_all,
                configuration="config.json",
                kept=tmp_path / "kept",
            )


@pytest.mark.parametrize("nested", [False, True])
def test_a_quantiser_is_refused(folder, nested):
    asks = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    write(folder, "config.json", {"model_type": "clip", **({"text_config": asks} if nested else asks)})
    with pytest.raises(CheckpointError, match=r"asks for a quantiser[\s\S]*quantization_config"):
        located(folder)
    write(folder, "config.json", {"model_type": "clip", "quantization_config": None})
    assert located(folder).family == "clip"


@pytest.mark.parametrize(
    ("file", "asks"),
    [
        ("config.json", {"model_type": "clip", "text_config": {"num_hidden_layers": 20_000}}),
        ("config.json", {"model_type": "clip", "vision_config": {"depth": 20_000}}),
        ("preprocessor_config.json", {"size": {"height": 20_000, "width": 20_000}}),
        ("preprocessor_config.json", {"image_size": [64, 20_000]}),
        ("preprocessor_config.json", {"size": 20_000}),
        ("preprocessor_config.json", {"size": {"shortest_edge": 20_000}}),
        ("preprocessor_config.json", {"crop_size": 20_000}),
        ("preprocessor_config.json", {"image_grid_pinpoints": [[336, 20_000]]}),
        ("preprocessor_config.json", {"size": {"shortest_edge": 3136, "longest_edge": 2_000_000_000}}),
        ("preprocessor_config.json", {"size": {"shortest_edge": 20_000, "longest_edge": 20_000}}),
        ("preprocessor_config.json", {"size": {"longest_edge": 20_000}}),
        (
            "preprocessor_config.json",
            {"image_processor_type": "Qwen2VLImageProcessor", "size": {"longest_edge": 2_000_000_000}},
        ),
        ("processor_config.json", {"image_seq_length": 2_000_000}),
        ("processor_config.json", {"num_additional_image_tokens": 2_000_000}),
    ],
)
def test_more_than_any_model_needs_is_refused_before_anything_is_built(folder, file, asks):
    write(folder, file, asks)
    with pytest.raises(CheckpointError, match=rf"more than any model needs[\s\S]*{file}[\s\S]*20{{4}}"):
        located(folder)


def test_edges_of_qwen_are_numbers_of_pixels(folder):
    size = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
    write(
        folder, "processor_config.json", {"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **size}}
    )
    assert located(folder).family == "clip"


@pytest.mark.parametrize("parts", [(), ("text_config",), ("vision_config", "inner")])
@pytest.mark.parametrize(
    ("asks", "told"),
    [
        ({"num_labels": 10_000_000}, "num_labels: 10000000"),
        ({"num_classes": 10_000_000}, "num_classes: 10000000"),
        ({"id2label": dict.fromkeys(range(100001), "")}, "id2label of 100,001 classes"),
        ({"label2id": dict.fromkeys(range(100001), 0)}, "label2id of 100,001 classes"),
    ],
)
def test_more_classes_than_any_model_has_are_refused_before_they_are_named(folder, parts, asks, told):
    for part in reversed(parts):
        asks = {part: asks}
    write(folder, "config.json", {"model_type": "clip", **asks})
    with pytest.raises(CheckpointError, match=rf"more than any model needs[\s\S]*{told}[\s\S]*100,000 at most"):
        located(folder)


@pytest.mark.parametrize("config", ["config.json", "open_clip_config.json"])
def test_no_model_is_built_of_settings_that_are_refused(folder, tmp_path, monkeypatch, config):
    built = []
    monkeypatch.setattr(folders, "_architecture", lambda *asked: built.append(asked))
    write(folder, config, {"model_type": "clip", "num_labels": 10_000_000})
    save_file({"bias": np.zeros(4, np.float32)}, folder / "model.safetensors")
    address = parse_address(f"local-dir:{folder}", project=tmp_path)
    with pytest.raises(CheckpointError, match="more than any model needs"):
        locate(address, fetched=tmp_path / "fetched", encoder="e", sizes=tmp_path / "sizes")
    assert not built


def test_as_many_classes_as_imagenet_has_are_accepted(folder):
    names = {number: f"class {number}" for number in range(21_843)}
    write(folder, "config.json", {"model_type": "clip", "vision_config": {"num_labels": 21_843, "id2label": names}})
    assert located(folder).family == "clip"


def test_weights_of_another_name_in_the_configuration_are_refused(folder):
    write(folder, "config.json", {"model_type": "clip", "transformers_weights": "other.safetensors"})
    with pytest.raises(CheckpointError, match="weights in another file"):
        located(folder)


def test_an_adapter_is_refused(folder):
    write(folder, "adapter_config.json", {})
    with pytest.raises(CheckpointError, match="is an adapter"):
        located(folder)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"no safetensors weights[\s\S]*no weights"),
        (("pytorch_model.bin",), r"no safetensors weights[\s\S]*pytorch_model\.bin[\s\S]*plumbline fetch`"),
        (("other.safetensors",), r"under the name that transformers loads[\s\S]*other\.safetensors"),
        (("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"), "several weights, and none"),
    ],
)
def test_weights_that_are_not_one_safetensors_file_are_refused(folder, names, message):
    (folder / "model.safetensors").unlink()
    for name in names:
        (folder / name).touch()
    with pytest.raises(CheckpointError, match=message):
        located(folder)


@pytest.mark.parametrize(
    ("gone", "message"), [("preprocessor_config.json", "an image processor"), ("tokenizer.json", "a tokenizer")]
)
def test_a_folder_without_processor_or_tokenizer_is_refused(folder, gone, message):
    (folder / gone).unlink()
    with pytest.raises(CheckpointError, match=rf"no files of {message}"):
        located(folder)


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "tokenizer.json", "merges.txt"])
def test_every_file_that_decides_is_in_the_digest(folder, name):
    before = located(folder).digest
    (folder / "README.md").write_text("read me")
    (folder / "pytorch_model.bin").write_text("never opened")
    assert located(folder).digest == before
    write(folder, name, {"model_type": "clip", "more": 1})
    assert located(folder).digest != before


def test_weights_that_are_not_complete_are_refused_with_both_lengths(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros((3, 5), np.float32)}, path)
    require_complete(path)
    whole = path.read_bytes()
    said = f"{len(whole)} bytes, as its header says"
    for length, expected in (
        (len(whole) - 1, said),
        (len(whole) - 60, said),
        (20, "a whole header"),
        (3, "a whole header"),
    ):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="the weights are not complete") as caught:
            require_complete(path)
        assert caught.value.where == path
        assert str(caught.value.found).startswith(f"{length} bytes")
        assert expected in str(caught.value.expected)
    header = b'{"weight":{"dtype":"nothing","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CheckpointError, match="these are no safetensors"):
        require_complete(path)
