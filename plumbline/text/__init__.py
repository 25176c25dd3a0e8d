"""Words of generated texts: counting them, and which are said more of one group than of the others."""

from plumbline.text.associations import associations_of_matrix, word_associations
from plumbline.text.counting import count_words
from plumbline.text.tokens import words_of

__all__ = ["associations_of_matrix", "count_words", "word_associations", "words_of"]
