# Of the functions in OBJECTS whose names begin with PREFIX (run by advectio_preloaded):
#   OUTPUT.aliases  linker options that give each the second name __wrap_NAME
#   OUTPUT.stub.c   a library with these second names only, for the link of a program that has the real functions in it.
#                   It refers to the real ones (with --wrap=NAME that is __real_NAME), and to those that we only call, which
#                   the headers CALLED list: so the linker of the program shows them to the loader.
execute_process(COMMAND ${NM} -g --defined-only ${OBJECTS} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T ${PREFIX}[A-Za-z0-9_]+" caught "${symbols}")
list(TRANSFORM caught REPLACE "^ T " "")
set(called)
foreach(header ${CALLED})
  file(READ ${header} text)
  string(REGEX MATCHALL "[(\"]${PREFIX}[a-z0-9_]+[)\"]" found "${text}") # X(nc_create), "nc_inq_libvers"
  list(APPEND called ${found})
endforeach()
list(TRANSFORM called REPLACE "[()\"]" "")
list(REMOVE_DUPLICATES called)
list(REMOVE_ITEM called ${caught})

set(aliases)
set(stub "#define REAL(F) void F(void) __attribute__((weak));\n")
set(table ${called})
foreach(function ${caught})
  list(APPEND table __real_${function})
  string(APPEND aliases "--defsym=__wrap_${function}=${function}\n")
  string(APPEND stub "void __wrap_${function}(void) {}\n")
endforeach()
foreach(function ${table})
  string(APPEND stub "REAL(${function})\n")
endforeach()
list(JOIN table ",\n" table)
file(WRITE ${OUTPUT}.aliases "${aliases}")
file(WRITE ${OUTPUT}.stub.c "${stub}void (*const advectio_referred[])(void) = {\n${table}};\n")
