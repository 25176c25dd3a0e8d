"""How each dataset of the planted world lies on disk: one module a kind, in the real dataset's own layout."""
