"""Prepares an interpreter's matplotlib for sessions: `path/to/venv/bin/python sidecar/packages/prepare.py`.

Writes two files to `<prefix>/share/otari/matplotlib`, which every session finds in its `MPLCONFIGDIR`: the list of all fonts,
so that none has to look for them again, and the settings by which text that the default font lacks (Chinese, Japanese,
Korean, emoji) is drawn with a font of this system that has it. To be run again when fonts are added.
"""

import os
import pathlib
import sys

FOLDER = pathlib.Path(sys.prefix, "share", "otari", "matplotlib")
# The first of each line that is there is taken. Colour fonts are not among them: matplotlib cannot draw those.
FALLBACKS = (
    ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC", "Source Han Sans SC",
     "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "AR PL UMing CN"),
    ("Noto Sans JP", "IPAexGothic", "IPAGothic", "TakaoGothic", "VL Gothic"),
    ("Noto Sans KR", "NanumGothic", "Baekmuk Gulim", "UnDotum"),
    ("Noto Emoji", "Symbola"),
)
# What a session sees of the file system.
SEEN = ("/usr/", sys.prefix + "/")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    os.environ["MPLCONFIGDIR"] = str(FOLDER)
    # Fonts of one user are no part of any session.
    os.environ["HOME"] = os.environ["XDG_DATA_HOME"] = "/nonexistent"
    try:
        from matplotlib import font_manager
    except ImportError:
        FOLDER.rmdir()
        return
    manager = font_manager.fontManager
    manager.ttflist = [font for font in manager.ttflist if font.fname.startswith(SEEN)]
    (cache,) = FOLDER.glob("fontlist-*.json")
    font_manager.json_dump(manager, cache)
    there = {font.name for font in manager.ttflist}
    families = ["sans-serif"]
    for names in FALLBACKS:
        families += [name for name in names if name in there][:1]
    FOLDER.joinpath("matplotlibrc").write_text("font.family: %s\n" % ", ".join(families))


main()
