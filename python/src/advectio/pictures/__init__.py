"""Pictures of fields: what `advectio plot` draws. Nothing here imports matplotlib or xarray before it is used."""
