"""Attributes that are not protected: slopes, levels and changes of one attribute at a time."""
