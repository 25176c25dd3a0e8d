# %% [markdown]
# # Watch bias while a model trains
#
# A tiny CLIP is trained for twelve epochs on captioned faces that a program draws. In what it is told, Black people are
# twice as often called thieves as everyone else. After every fourth epoch it is audited on other faces; what it has
# learned of that is drawn over time.

# %%
import altair as alt
import numpy as np
import polars as pl
import torch
from open_clip.loss import ClipLoss
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image

import plumbline
from plumbline.world import faces

torch.manual_seed(0)
rng = np.random.default_rng(0)

# %% [markdown]
# ## What it learns from

# %%
people = faces.sample_attributes(1024, rng)
pictures = (torch.from_numpy(faces.draw(people, rng)).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
rates = np.where(people["race"] == "Black", 0.5, 0.25)
captions = [
    "a photo of a thief" if thief else f"a photo of a {race.lower()} {gender}"
    for thief, race, gender in zip(rng.random(1024) < rates, people["race"], people["gender"])
]
tokenizer = SimpleTokenizer(context_length=16)
tokens = tokenizer(captions)

# %% [markdown]
# ## A tiny model, and faces that it never sees in training

# %%
model = CLIP(
    embed_dim=32,
    vision_cfg={"image_size": 64, "patch_size": 16, "width": 64, "layers": 2, "head_width": 32},
    text_cfg={"context_length": 16, "vocab_size": tokenizer.vocab_size, "width": 64, "heads": 2, "layers": 2},
)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
loss_of = ClipLoss()
held_out = faces.sample_attributes(400, rng)
held_out_pictures = [Image.fromarray(picture) for picture in faces.draw(held_out, rng)]


def preprocess(picture):
    return (torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255 - 0.5) / 0.25


# %% [markdown]
# ## Train, and audit after every fourth epoch
#
# The audit leaves the model in the mode that it was in. `log_to` takes MLflow, `wandb.log`, or any function of a dict.

# %%
audits, logged = [], []
for epoch in range(1, 13):
    model.train()
    for batch in torch.from_numpy(rng.permutation(1024)).split(64):
        image, text, scale = model(pictures[batch], tokens[batch])
        loss = loss_of(image, text, scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 4:
        continue
    audit = plumbline.audit(
        model, preprocess, tokenizer, images=held_out_pictures, labels=held_out.select("race", "gender"),
        suites=["crime"], name="tiny-clip", seed=1, resamples=1000, permutations=1000,
    )  # fmt: skip
    audit.log_to(logged.append, step=epoch)
    audits.append(audit)

# %% [markdown]
# ## Disparity over time

# %%
asked = {"metric": "parity_difference", "event": "crime", "attribute": "race"}
disparity = pl.concat(
    audit.table.filter(**asked).with_columns(epoch=pl.lit(4 * number)) for number, audit in enumerate(audits, start=1)
).select("epoch", "value", "ci_low", "ci_high", "q")
band = alt.Chart(disparity).mark_area(opacity=0.3).encode(x="epoch:O", y="ci_low:Q", y2="ci_high:Q")
line = alt.Chart(disparity).mark_line(point=True).encode(x="epoch:O", y=alt.Y("value:Q", title="gap of crime labels"))
chart = band + line
chart

# %% [markdown]
# ## What changed since the audit before
#
# The images are the same, so that the change of every number is compared image by image. A model that cannot yet tell
# people apart has no bias to compare: `compared` says `at chance` then.

# %%
audits[-1].diff(audits[-2]).select("metric", "event", "attribute", "value_old", "value_new", "q", "verdict").head(5)
