# %% [markdown]
# # Audit a model on your own pictures
#
# A folder of pictures, a table of who is on them, and a model that is loaded already: no audit file, no store. The
# pictures here are drawn by a program, and the model is a tiny one that comes with Plumbline, so that this runs
# anywhere; put your own in their place.

# %%
import tempfile
from pathlib import Path

import numpy as np
import open_clip
import pandas as pd
from PIL import Image

import plumbline
from plumbline.world import faces

# %% [markdown]
# ## Pictures and a table
#
# Any table will do: pandas, polars, or a dict of columns. What Plumbline reads are columns such as `gender`, `race` and
# `age_group`; rename yours.

# %%
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
drawn = faces.sample_attributes(300, rng)
for number, picture in enumerate(faces.draw(drawn, rng)):
    Image.fromarray(picture).save(folder / f"{number:03}.png")
people = pd.DataFrame({"file": [f"{i:03}.png" for i in range(300)], "sex": drawn["gender"], "origin": drawn["race"]})
people.loc[::40, "sex"] = None  # unknown: left out of what is compared by gender, and of nothing else
people.head(3)

# %% [markdown]
# ## The model, as open_clip loads it
#
# A model of transformers goes with its processor, `plumbline.audit(model, processor, ...)`, and any two functions do as
# well, `plumbline.audit((embed_images, embed_texts), ...)`.

# %%
checkpoint = f"local-dir:{Path(plumbline.__file__).parent / 'world' / 'checkpoints' / 'small-bazaar-3k'}"
model, _, preprocess = open_clip.create_model_and_transforms(checkpoint)
tokenizer = open_clip.get_tokenizer(checkpoint)

# %% [markdown]
# ## The audit

# %%
audit = plumbline.audit(
    model,
    preprocess,
    tokenizer,
    images=[folder / name for name in people["file"]],
    labels=people.rename(columns={"sex": "gender", "origin": "race"}),
    suites=["crime", "agency"],
    name="small-bazaar",
    seed=1,
)
audit

# %% [markdown]
# Every number has its interval, p, q and n, and a reason where it is undefined.

# %%
audit.table.filter(metric="max_skew", definition="mean_over_pairs").select(
    "event", "attribute", "value", "ci_low", "ci_high", "q", "n"
)

# %%
audit.scorecard()

# %% [markdown]
# ## One number alone
#
# The metrics are functions too: of predictions and groups, or of counts.

# %%
chosen = [audit.cell.logits["crime"].suite.candidates[i].category for i in audit.cell.logits["crime"].top()]
plumbline.max_skew(chosen, groups=people["origin"], event="crime", smoothing=0.5, interval=True, seed=1)

# %% [markdown]
# ## Hand it on
#
# Parquet, CSV, Croissant, CLIP_benchmark's table, results for the Hugging Face Hub, a flat dict for trackers.

# %%
written = audit.export(folder / "audit")
[path.name for path in written]
