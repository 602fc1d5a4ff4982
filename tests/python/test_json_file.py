"""JSON files that the user names."""

import re
from pathlib import Path

import pytest
from advectio.errors import UserError
from advectio.json_file import read_map
from advectio.live.find import read_contact


def test_a_map_is_read_and_all_else_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "a.json"
    with pytest.raises(UserError, match=re.escape(f"r.yaml:2: dataset: {path}: No such file or directory")):
        read_map(str(path), "r.yaml:2: dataset")
    path.write_text('{"a": [1, 2]}')
    assert read_map(str(path), "dataset") == {"a": [1, 2]}
    path.write_text('{"a": [1, 2}')
    with pytest.raises(UserError, match=re.escape(f"dataset: {path} is no JSON: Expecting ',' delimiter: line 1")):
        read_map(str(path), "dataset")
    path.write_text("[1]")
    with pytest.raises(UserError, match=re.escape(f"contact file of a run: {path}: a map is wanted")):
        read_contact(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is no JSON"):
        read_contact(str(path))
