"""Texts of models, labels, file names and titles that would run, load, reorder or count if they were not text."""

HOSTILE = {
    "closes a script": '</script><script>window.ran = 1</script><img src=x onerror="window.ran = 2">',
    "an expression": "datum.value; window.ran = 3",
    "ends a string": "');window.ran=4;('",
    "a template": "{{ 7 * 7 }}${7*7}",
    "an escape sequence": "\x1b[31mred\x1b]0;title\x07",
    "right to left": "a\u202egnp.exe\u2066",
    "a formula": "=cmd|'/c calc'!A1",
    "a formula on a line of its own": "\n@SUM(1)",
    "Markdown": "[x](javascript:alert(1)) | <img src=x> ![](http://x.example/a.png)",
    "markup of the terminal": "[red]x[/] [link=file:///etc]y[/link]",
}
"""What a text tries -> the text."""
HIDDEN = "[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]"
"""Regular expression of what no shown text may hold."""
