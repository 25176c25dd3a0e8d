"""The way of the released code: the library's own classes, one image at a time with its texts in one padded batch."""

import torch
from every_encoder import AS_OWLVIT

DUAL = {"altclip": "AltCLIP", "chinese_clip": "ChineseCLIP", "siglip": "Siglip"}
PAIRS = ("blip", "blip_2", "bridgetower")


def released(case, folder):
    """Return a function from a picture and m texts to their (1, m) logits; what it needs is loaded once."""
    if case == "open_clip":
        return _open_clip(folder)
    model, processor = _loaded(case, folder)
    # The joined processors of ALIGN and OWL pad to a fixed length by themselves.
    fixed = case in ("align", "siglip2", "tipsv2", "owlv2", "owlvit", AS_OWLVIT)
    options = {} if fixed else {"padding": True}
    if case == "siglip":
        options = {"padding": "max_length", "max_length": 64}
    if case == "siglip2":
        # The joined processor would cut an image into patches of its own default, not the checkpoint's.
        options = {"patch_size": 8, "max_num_patches": 20}
    answer = _ANSWERS.get(case, _owl if case.startswith("owl") else _own_logits)

    def score(picture, texts):
        # A matching head takes pairs: the picture once for every text.
        pictures = [picture] * len(texts) if case in PAIRS else picture
        inputs = processor(text=list(texts), images=pictures, return_tensors="pt", **options)
        with torch.inference_mode():
            return answer(model, inputs)

    return score


def _open_clip(folder):
    import open_clip

    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}", require_pretrained=True)
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")

    def score(picture, texts):
        with torch.inference_mode():
            return model.encode_image(transform(picture)[None]) @ model.encode_text(tokenizer(list(texts))).T

    return score


def _loaded(case, folder):
    import transformers as t

    model_class, joined, images = {
        "clip": (t.CLIPModel, t.CLIPProcessor, t.CLIPImageProcessorPil),
        "align": (t.AlignModel, t.AlignProcessor, t.EfficientNetImageProcessorPil),
        **{case: (getattr(t, f"{name}Model"), getattr(t, f"{name}Processor"), None) for case, name in DUAL.items()},
        "metaclip_2": (t.MetaClip2Model, t.CLIPProcessor, None),
        "siglip2": (t.Siglip2Model, t.Siglip2Processor, None),
        "tipsv2": (t.Tipsv2Model, t.Tipsv2Processor, t.Tipsv2ImageProcessor),
        "dual_encoder": (t.GroupViTModel, t.CLIPProcessor, None),
        "flava": (t.FlavaModel, t.FlavaProcessor, None),
        "blip": (t.BlipForImageTextRetrieval, t.BlipProcessor, None),
        "blip_2": (t.Blip2ForImageTextRetrieval, t.Blip2Processor, None),
        "bridgetower": (
            t.BridgeTowerForImageAndTextRetrieval, t.BridgeTowerProcessor, t.BridgeTowerImageProcessorPil
        ),
        "owlv2": (t.Owlv2ForObjectDetection, t.Owlv2Processor, t.Owlv2ImageProcessorPil),
        "owlvit": (t.OwlViTForObjectDetection, t.OwlViTProcessor, t.OwlViTImageProcessorPil),
        # The same weights in the same places: only the preprocessing is another.
        AS_OWLVIT: (t.Owlv2ForObjectDetection, t.OwlViTProcessor, t.OwlViTImageProcessorPil),
    }[case]  # fmt: skip
    pictures_in = (
        images.from_pretrained(folder) if images else t.AutoImageProcessor.from_pretrained(folder, backend="pil")
    )
    return model_class.from_pretrained(folder).eval(), joined(pictures_in, t.AutoTokenizer.from_pretrained(folder))


def _own_logits(model, inputs):
    return model(**inputs).logits_per_image


def _owl(model, inputs):
    return model(**inputs).logits.mean(dim=1)


def _blip(model, inputs):
    return model(**inputs).itm_score[None, :, 1]


def _blip_2(model, inputs):
    return model(**inputs, use_image_text_matching_head=True).logits_per_image[None, :, 1]


def _bridgetower(model, inputs):
    return model(**inputs).logits[None, :, 1]


def _flava(model, inputs):
    # As FlavaForPreTraining compares them: the first token of each tower, projected.
    image = model.image_projection(model.image_model(inputs.pop("pixel_values")).last_hidden_state[:, 0])
    text = model.text_projection(model.text_model(**inputs).last_hidden_state[:, 0])
    image, text = (torch.nn.functional.normalize(vectors, dim=-1) for vectors in (image, text))
    return image @ text.T * model.logit_scale.exp()


def _clip(model, inputs):
    image = model.get_image_features(inputs.pop("pixel_values")).pooler_output
    return image @ model.get_text_features(**inputs).pooler_output.T


_ANSWERS = {"clip": _clip, "flava": _flava, "blip": _blip, "blip_2": _blip_2, "bridgetower": _bridgetower}
