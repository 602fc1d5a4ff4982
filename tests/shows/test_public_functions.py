"""Every public function of netCDF-C and PnetCDF that takes a dataset is ours, or is known to do no harm on one of ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

# What the library answers by its own copy of the metadata, or without a dataset.
_ASK = """
nc_inq nc_inq_ndims nc_inq_nvars nc_inq_natts nc_inq_unlimdim nc_inq_unlimdims nc_inq_format nc_inq_base_pe
nc_inq_dimid nc_inq_dimids nc_inq_dimname nc_inq_var nc_inq_varid nc_inq_varids nc_inq_varname nc_inq_vartype
nc_inq_varndims nc_inq_vardimid nc_inq_varnatts nc_inq_att nc_inq_attid nc_inq_atttype nc_inq_attlen nc_inq_attname
nc_inq_var_deflate nc_inq_var_fletcher32 nc_inq_var_szip nc_inq_var_chunking nc_inq_var_chunking_ints nc_inq_var_fill
nc_inq_var_endian nc_inq_var_filter nc_inq_var_filter_ids nc_inq_var_filter_info nc_inq_var_filterids
nc_inq_var_filterinfo nc_inq_var_quantize nc_inq_var_bzip2 nc_inq_var_zstandard nc_inq_var_blosc nc_inq_filter_avail
nc_inq_ncid nc_inq_grps nc_inq_grpname nc_inq_grpname_full nc_inq_grpname_len nc_inq_grp_parent nc_inq_grp_ncid
nc_inq_grp_full_ncid nc_inq_type nc_inq_typeid nc_inq_typeids nc_inq_type_equal nc_inq_user_type nc_show_metadata
nc_get_att nc_get_att_text nc_get_att_schar nc_get_att_uchar nc_get_att_ubyte nc_get_att_short nc_get_att_ushort
nc_get_att_int nc_get_att_uint nc_get_att_long nc_get_att_longlong nc_get_att_ulonglong nc_get_att_float
nc_get_att_double nc_get_att_string nc_get_var_chunk_cache nc_get_var_chunk_cache_ints
ncinquire ncdimid ncvarid ncvarinq ncattinq ncattget ncattname
"""
# What changes nothing that a file keeps, or what the library refuses for a dataset without groups and types: where
# there are any, it writes the file itself.
_HARMLESS = """
nc_set_var_chunk_cache nc_set_var_chunk_cache_ints nc_set_base_pe nc_rename_grp
nc_inq_compound nc_inq_compound_name nc_inq_compound_size nc_inq_compound_nfields nc_inq_compound_field
nc_inq_compound_fieldname nc_inq_compound_fieldindex nc_inq_compound_fieldoffset nc_inq_compound_fieldtype
nc_inq_compound_fieldndims nc_inq_compound_fielddim_sizes nc_inq_vlen nc_inq_enum nc_inq_enum_member
nc_inq_enum_ident nc_inq_opaque nc_insert_compound nc_insert_array_compound nc_insert_enum nc_put_vlen_element
nc_get_vlen_element nc_reclaim_data nc_reclaim_data_all nc_copy_data nc_copy_data_all nc_dump_data nc_print_data
ncaux_add_field ncaux_end_compound ncaux_abort_compound ncaux_reclaim_data ncaux_reclaim_data_all ncaux_copy_data
ncaux_copy_data_all ncaux_dump_data ncaux_inq_any_type ncaux_type_alignment
"""
_NO_DATASET = """
nc_inq_libvers nc_strerror nc_advise nc_initialize nc_finalize nc_set_log_level nc_set_default_format
nc_get_default_format nc_set_chunk_cache nc_get_chunk_cache nc_set_chunk_cache_ints nc_get_chunk_cache_ints
nc_get_alignment nc_def_user_format nc_inq_user_format nc_free_string nc_free_vlen nc_free_vlens nc_delete
nc_delete_mp nc_create_mem nc_open_mem nc_open_memio nc_rc_get nc_rc_set nc_filter_path_query nc_plugin_path_ndirs
nc_plugin_path_get nc_plugin_path_set ncaux_plugin_path_parse ncaux_plugin_path_tostring
ncaux_plugin_path_freestringvec ncaux_plugin_path_append ncaux_plugin_path_clear ncaux_plugin_path_parsen
ncaux_plugin_path_prepend ncaux_plugin_path_reclaim ncaux_plugin_path_stringget ncaux_plugin_path_stringlen
ncaux_plugin_path_stringset ncaux_class_alignment ncaux_h5filterspec_parse ncaux_h5filterspec_parselist
ncaux_h5filterspec_parse_parameter ncaux_h5filterspec_free ncaux_h5filterspec_fix8 ncaux_readfile ncaux_writefile
nctypelen
"""
_INNER = re.compile(
    r"nc_utf8|nc__(pseudofd|testurl)$|nc_get_NC$|nc_http_|nc_log(_|$)|nc_plugin_path_(initial|final)ize$"
)  # exported, and in no header

_PNETCDF_ASK = """
ncmpi_inq ncmpi_inq_ndims ncmpi_inq_nvars ncmpi_inq_natts ncmpi_inq_unlimdim ncmpi_inq_format ncmpi_inq_version
ncmpi_inq_striping ncmpi_inq_dimid ncmpi_inq_dimname ncmpi_inq_var ncmpi_inq_varid ncmpi_inq_varname ncmpi_inq_vartype
ncmpi_inq_varndims ncmpi_inq_vardimid ncmpi_inq_varnatts ncmpi_inq_att ncmpi_inq_attid ncmpi_inq_atttype
ncmpi_inq_attlen ncmpi_inq_attname ncmpi_inq_buffer_size ncmpi_inq_files_opened ncmpi_inq_libvers
ncmpi_inq_malloc_size ncmpi_inq_malloc_max_size ncmpi_inq_malloc_list ncmpi_inq_default_format
ncmpi_set_default_format ncmpi_strerror ncmpi_strerrno
ncmpi_get_att ncmpi_get_att_text ncmpi_get_att_schar ncmpi_get_att_uchar ncmpi_get_att_ubyte ncmpi_get_att_short
ncmpi_get_att_ushort ncmpi_get_att_int ncmpi_get_att_uint ncmpi_get_att_long ncmpi_get_att_float
ncmpi_get_att_double ncmpi_get_att_longlong ncmpi_get_att_ulonglong
"""

_NETCDF_2 = """
nccreate ncopen ncclose ncabort ncsync ncredef ncendef ncsetfill ncinquire ncdimdef ncdimid ncdiminq ncdimrename
ncvardef ncvarid ncvarinq ncvarrename ncvarput1 ncvarget1 ncvarput ncvarget ncvarputs ncvargets ncvarputg ncvargetg
ncrecinq ncrecget ncrecput ncattput ncattinq ncattget ncattcopy ncattname ncattrename ncattdel nctypelen
"""
# Of netCDF 4.7 to 4.10 and PnetCDF 1.12 to 1.15 beside what is installed. The families are not repeated here.
_OTHER_VERSIONS = f"""
{_NETCDF_2} nc_def_var_filter nc_def_var_szip nc_def_var_bzip2 nc_def_var_zstandard nc_def_var_blosc
nc_def_var_quantize nc_def_var_chunking_ints nc_set_alignment nc_close_memio nc_create_par nc_open_par
nc_create_par_fortran nc_open_par_fortran nc_var_par_access nc_put_rec nc_get_rec nc_inq_rec nc__create_mp nc__open_mp
nc_inq_filter_avail nc_plugin_path_set ncaux_begin_compound ncaux_end_compound ncaux_copy_data ncaux_inq_any_type
ncmpi_var_set_chunk ncmpi_var_get_chunk ncmpi_var_set_filter ncmpi_var_get_filter ncmpi_flush ncmpi_inq_path
"""

KNOWN = set((_ASK + _HARMLESS + _NO_DATASET + _PNETCDF_ASK).split())
PUBLIC = re.compile(rf"(nc_|ncaux_|ncmpi_)\w+$|({'|'.join(_NETCDF_2.split())})$")


def exported(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["type"] == "STT_FUNC"}


@pytest.fixture(scope="module")
def ours(replay: Path) -> set[str]:
    folder = replay.parents[2] / "src" / "capture"
    return {n for lib in folder.glob("*/libadvectio_*.so") for n in exported(lib) if PUBLIC.match(n)}


@pytest.mark.parametrize(
    ("program", "library"),
    [
        ("netcdf/netcdf_chosen_calls", "libnetcdf.so"),
        ("netcdf/netcdf_parallel_calls", "libnetcdf"),
        ("pnetcdf/pnetcdf_chosen_calls", "libpnetcdf.so"),
    ],
)
def test_no_public_function_of_the_installed_library_is_forgotten(replay: Path, ours: set[str], program: str, library: str):
    at = replay.parents[2] / "tests" / "capture" / program
    if not at.exists():
        pytest.skip(f"{at} is not built: no such library here")
    lines = subprocess.run(["ldd", at], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split()[2] for line in lines if line.strip().startswith(library)]
    assert found, lines
    functions = {n for n in exported(Path(found[0])) if PUBLIC.match(n) and not _INNER.match(n)}
    assert len(functions) > 250
    assert not functions - ours - KNOWN, "is it called on a dataset? Then export it, and carry it or hand the dataset over"


def test_those_of_other_versions_are_ours_too(ours: set[str]):
    assert not set(_OTHER_VERSIONS.split()) - ours - KNOWN
    assert not ours & KNOWN
