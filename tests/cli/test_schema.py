from __future__ import annotations

import json

from fagen.spec.schema import json_schema


def test_prints_the_schema_of_a_spec(fagen):
    result = fagen("schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json_schema()
