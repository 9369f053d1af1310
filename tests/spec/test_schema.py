import json

from fagen.paths import SPECS
from fagen.spec.model import Schedule
from fagen.spec.schema import json_schema, json_text, leaves, schema_of


def test_the_committed_schema_is_the_one_that_the_model_makes() -> None:
    assert (SPECS / "fagen.schema.json").read_text(encoding="utf-8") == json_text()


def test_the_schema_stands_alone() -> None:
    text = json.dumps(json_schema())
    assert "$ref" not in text
    assert "$defs" not in text


def test_only_a_spec_that_extends_no_other_must_have_every_key() -> None:
    schema = json_schema()
    assert schema["required"] == ["name"]
    assert schema["if"] == {"required": ["extends"]}
    assert schema["else"]["required"] == ["family", "arch", "problem"]
    assert schema["else"]["properties"]["problem"]["required"] == ["dtype", "head_dim"]
    assert "required" not in schema["properties"]["problem"]


def test_making_the_schema_leaves_the_shape_of_the_model_as_it_was() -> None:
    before = json_text()
    assert json_text() == before


def test_tune_offers_exactly_the_schedule_keys() -> None:
    tune = json_schema()["properties"]["tune"]
    assert tuple(tune["properties"]) == tuple(leaves(schema_of(Schedule)))
    assert tune["properties"]["tile.q"]["items"]["anyOf"][0]["multipleOf"] == 16


def test_every_key_has_a_description() -> None:
    undescribed = [key for key, schema in leaves(json_schema()).items() if not schema.get("description")]
    assert all(key.startswith("tune.") for key in undescribed), undescribed
