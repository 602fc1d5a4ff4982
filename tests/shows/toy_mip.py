"""The tables of a MIP that does not exist, in the JSON that CMOR reads, and the dataset of a model that takes part in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LEVELS = ["85000.", "70000.", "50000."]
HEADER = {
    "data_specs_version": "01.00.00",
    "cmor_version": "3.5",
    "table_date": "01 January 2026",
    "missing_value": "1e20",
    "int_missing_value": "-999",
    "product": "model-output",
    "mip_era": "TOYMIP",
    "Conventions": "CF-1.7",
    "realm": "atmos",
    "generic_levels": "alevel",
}
MONTH, POINT = "longitude latitude time", "longitude latitude time1"


def _variable(
    frequency: str, standard_name: str, units: str, cell_methods: str, dimensions: str, **more: str
) -> dict[str, str]:
    return {
        "frequency": frequency,
        "modeling_realm": "atmos",
        "standard_name": standard_name,
        "units": units,
        "cell_methods": cell_methods,
        "cell_measures": "area: areatoy",
        "long_name": f"Toy {standard_name.replace('_', ' ')}",
        "comment": "",
        "dimensions": dimensions,
        "type": "real",
        "positive": "",
        "valid_min": "",
        "valid_max": "",
        "ok_min_mean_abs": "",
        "ok_max_mean_abs": "",
        **more,
    }


def _axis(standard_name: str, units: str, axis: str, out_name: str, **more: Any) -> dict[str, Any]:
    return {
        "standard_name": standard_name,
        "units": units,
        "axis": axis,
        "long_name": standard_name.replace("_", " "),
        "out_name": out_name,
        "type": "double",
        "must_have_bounds": "no",
        "stored_direction": "increasing",
        **dict.fromkeys(("climatology", "formula", "positive", "requested", "requested_bounds", "tolerance", "value"), ""),
        **dict.fromkeys(("valid_max", "valid_min", "z_bounds_factors", "z_factors", "bounds_values", "generic_level_name"), ""),
        **more,
    }


AXES = {
    "time": _axis("time", "days since ?", "T", "time", must_have_bounds="yes"),
    "time1": _axis("time", "days since ?", "T", "time"),
    "time2": _axis("time", "days since ?", "T", "time", must_have_bounds="yes", climatology="yes"),
    "latitude": _axis("latitude", "degrees_north", "Y", "lat", must_have_bounds="yes", valid_min="-90.0", valid_max="90.0"),
    "longitude": _axis("longitude", "degrees_east", "X", "lon", must_have_bounds="yes", valid_min="0.0", valid_max="360.0"),
    "plev3t": _axis("air_pressure", "Pa", "Z", "plev", positive="down", stored_direction="decreasing", requested=LEVELS),
    "p700": _axis("air_pressure", "Pa", "Z", "plev", positive="down", value="70000."),
    "height2m": _axis("height", "m", "Z", "height", positive="up", value="2."),
}
_TEMPERATURE = "air_temperature"
TABLES = {
    "Tmon": {
        "tas": _variable("mon", _TEMPERATURE, "K", "area: time: mean", f"{MONTH} height2m", out_name="tas", valid_max="330"),
        "tasmax": _variable(
            "mon",
            _TEMPERATURE,
            "K",
            "area: mean time: maximum within days time: mean over days",
            f"{MONTH} height2m",
            out_name="tasmax",
        ),
        "ps": _variable("mon", "surface_air_pressure", "hPa", "area: time: mean", MONTH, out_name="ps"),
        "pr": _variable("mon", "precipitation_flux", "kg m-2 s-1", "area: time: mean", MONTH, out_name="pr"),
        "ta": _variable("mon", _TEMPERATURE, "K", "time: mean", "longitude latitude plev3t time", out_name="ta"),
        "ta700": _variable("mon", _TEMPERATURE, "K", "time: mean", "longitude latitude time p700", out_name="ta700"),
        "rlut": _variable(
            "mon", "toa_outgoing_longwave_flux", "W m-2", "area: time: mean", MONTH, out_name="rlut", positive="up"
        ),
        "cl": _variable("mon", "cloud_area_fraction", "%", "area: time: mean", "longitude latitude alevel time", out_name="cl"),
        "tasclim": _variable("monC", _TEMPERATURE, "K", "time: mean", "longitude latitude time2", out_name="tasclim"),
    },
    "Thour": {"ps": _variable("3hrPt", "surface_air_pressure", "Pa", "area: mean time: point", POINT, out_name="ps")},
    "Tfx": {"orog": _variable("fx", "surface_altitude", "m", "area: mean", "longitude latitude", out_name="orog")},
}
CV = {
    "required_global_attributes": [
        *("Conventions", "activity_id", "creation_date", "experiment", "experiment_id", "frequency", "grid_label"),
        *(
            "institution",
            "institution_id",
            "mip_era",
            "nominal_resolution",
            "realm",
            "source",
            "source_id",
            "source_type",
            "table_id",
        ),
        *("tracking_id", "variable_id", "variant_label", "license", "further_info_url"),
    ],
    "activity_id": {"Toys": "runs for tests"},
    "institution_id": {"NOWHERE": "Institute of Nowhere"},
    "source_id": {"Toy-1": {"source_id": "Toy-1", "source": "Toy 1 (2026)", "institution_id": ["NOWHERE"]}},
    "experiment_id": {
        "play": {
            "experiment_id": "play",
            "experiment": "a short run",
            "activity_id": ["Toys"],
            "sub_experiment_id": ["none"],
            "required_model_components": ["AGCM"],
            "additional_allowed_model_components": [""],
            "parent_activity_id": ["no parent"],
            "parent_experiment_id": ["no parent"],
        }
    },
    "source_type": {"AGCM": "atmosphere", "AOGCM": "atmosphere and ocean"},
    "sub_experiment_id": {"none": "none"},
    "frequency": {"mon": "", "3hrPt": "", "fx": "", "monC": ""},
    "grid_label": {"gn": "native", "gr": "regridded"},
    "nominal_resolution": ["10 km", "100 km"],
    "mip_era": ["TOYMIP"],
    "tracking_id": ["hdl:00.00000/.*"],
    "variant_label": ["^r[[:digit:]]\\{1,\\}i[[:digit:]]\\{1,\\}p[[:digit:]]\\{1,\\}f[[:digit:]]\\{1,\\}$"],
    "license": ["^made for tests (.*)\\.$"],
}
DATASET = {
    "#note": "a comment",
    "_cmip6_option": "CMIP6",
    "outpath": "oracle",
    "_controlled_vocabulary_file": "TOY_CV.json",
    "_AXIS_ENTRY_FILE": "TOY_coordinate.json",
    "_FORMULA_VAR_FILE": "TOY_formula_terms.json",
    "tracking_prefix": "hdl:00.00000",
    "calendar": "standard",
    "activity_id": "Toys",
    "source_type": "AGCM",
    "sub_experiment_id": "none",
    "sub_experiment": "none",
    "parent_activity_id": "no parent",
    "parent_experiment_id": "no parent",
    "experiment_id": "play",
    "institution_id": "NOWHERE",
    "source_id": "Toy-1",
    "mip_era": "TOYMIP",
    "realization_index": "1",
    "initialization_index": "2",
    "physics_index": "3",
    "forcing_index": "4",
    "grid_label": "gn",
    "nominal_resolution": "10 km",
    "license": "made for tests (by nobody).",
    "branch_time_in_child": "0.5",
    "output_path_template": "<mip_era><source_id><_member_id><table><variable_id><version>",
    "output_file_template": "<variable_id><table><source_id><_member_id>",
}
GRIDS = {
    "Header": {**HEADER, "table_id": "Table grids"},
    "axis_entry": {
        "y": {
            "long_name": "y of toys",
            "standard_name": "projection_y_coordinate",
            "units": "m",
            "type": "double",
            "axis": "Y",
        },
        "x": {
            "long_name": "x of toys",
            "standard_name": "projection_x_coordinate",
            "units": "m",
            "type": "double",
            "axis": "X",
        },
    },
    "variable_entry": {
        name: {"dimensions": "longitude latitude", "long_name": name, "standard_name": name, "out_name": name, "units": units}
        for name, units in (("latitude", "degrees_north"), ("longitude", "degrees_east"))
    },
    "mapping_entry": {},
}


def write_mip(directory: Path) -> Path:
    """The tables below ``directory/tables``, and ``dataset.json`` beside them. Returns the tables."""
    tables = directory / "tables"
    tables.mkdir()
    for name, variables in TABLES.items():
        interval = {"Tmon": "30.0", "Thour": "0.125", "Tfx": "0"}[name]
        header = {**HEADER, "table_id": f"Table {name}", "approx_interval": interval}
        table = {"Header": header, "variable_entry": variables}
        (tables / f"TOY_{name}.json").write_text(json.dumps(table))
    (tables / "TOY_coordinate.json").write_text(json.dumps({"axis_entry": AXES}))
    (tables / "TOY_formula_terms.json").write_text(json.dumps({"formula_entry": {}}))
    (tables / "TOY_grids.json").write_text(json.dumps(GRIDS))
    (tables / "TOY_CV.json").write_text(json.dumps({"CV": CV}))
    write_dataset(directory)
    return tables


def write_dataset(directory: Path, **changes: object) -> None:
    """``None`` leaves a key out."""
    said = {key: value for key, value in {**DATASET, **changes}.items() if value is not None}
    (directory / "dataset.json").write_text(json.dumps(said))
