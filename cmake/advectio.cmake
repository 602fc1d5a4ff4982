# What every target of the project shares, and the functions by which a folder of src/ becomes a library.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Where CMAKE_UNITY_BUILD is on, as in the presets: most of a source's time goes into its headers.
# Two cores are busy with batches of this size; -DCMAKE_UNITY_BUILD=OFF is for those who edit.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
find_program(ADVECTIO_CCACHE ccache)
if(ADVECTIO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${ADVECTIO_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ADVECTIO_CCACHE})
endif()
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(advectio_flags INTERFACE)
target_compile_options(advectio_flags INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(ADVECTIO_WERROR)
  target_compile_options(advectio_flags INTERFACE -Werror)
endif()
if(ADVECTIO_SANITIZE)
  target_compile_options(advectio_flags INTERFACE -fsanitize=${ADVECTIO_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(advectio_flags INTERFACE -fsanitize=${ADVECTIO_SANITIZE})
endif()

# advectio_existing_includes(PREFIX): take directories that do not exist out of what pkg_check_modules(PREFIX …) has found, as
# CMake refuses them. Debian 13's pnetcdf.pc names those of the machine that made the package.
function(advectio_existing_includes prefix)
  set(existing)
  foreach(directory ${${prefix}_INCLUDE_DIRS})
    if(EXISTS ${directory})
      list(APPEND existing ${directory})
    endif()
  endforeach()
  set(${prefix}_INCLUDE_DIRS ${existing} PARENT_SCOPE)
  if(TARGET PkgConfig::${prefix})
    set_property(TARGET PkgConfig::${prefix} PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${existing})
  endif()
endfunction()

# advectio_compiled_singly(targets…): not joined with CMAKE_UNITY_BUILD, as their sources have names in common.
function(advectio_compiled_singly)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD OFF)
endfunction()

# advectio_hot(sources…): loops over a model's values. The rest is no faster with -O3.
function(advectio_hot)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O3>)
endfunction()

# advectio_folder(NAME sources… DEPENDS targets…): static library advectio_NAME out of one folder of src/.
function(advectio_folder name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_library(advectio_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(advectio_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(advectio_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(advectio_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:advectio_flags>)
endfunction()

# advectio_preloaded(NAME sources… EXPORTS map INCLUDES directories… DEPENDS targets…): shared library NAME, to be preloaded into programs.
# It brings its own C++ runtime and shows only what the map names, so that it does no harm in any process. Each of its
# functions with the prefix WRAP is there as __wrap_NAME too: so a program calls it that has the real one linked into it.
# Such a program is linked with the library of the same name in the folder advectio-link, which has these names only. The
# headers CALLED list the functions of the real library that this one calls.
function(advectio_preloaded name)
  cmake_parse_arguments(ARG "" "EXPORTS;WRAP" "CALLED;INCLUDES;DEPENDS" ${ARGN})
  add_library(${name} SHARED ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(ARG_INCLUDES)
    target_include_directories(${name} SYSTEM PRIVATE ${ARG_INCLUDES})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} advectio_flags ${CMAKE_DL_LIBS})
  target_link_options(
    ${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--version-script=${ARG_EXPORTS} -Wl,--exclude-libs,ALL)
  set_target_properties(
    ${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                       # No -DNAME_EXPORTS: a source of two such libraries is compiled by the same command.
                       DEFINE_SYMBOL ""
                       LINK_DEPENDS "${ARG_EXPORTS};${ARG_CALLED};${PROJECT_SOURCE_DIR}/cmake/wrapped.cmake")
  if(ARG_WRAP)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/${name})
    add_custom_command(TARGET ${name} PRE_LINK VERBATIM
      COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DPREFIX=${ARG_WRAP} -DOUTPUT=${made} "-DCALLED=${ARG_CALLED}"
              "-DOBJECTS=$<TARGET_OBJECTS:${name}>" -P ${PROJECT_SOURCE_DIR}/cmake/wrapped.cmake)
    target_link_options(${name} PRIVATE -Wl,@${made}.aliases)
    set(stub ${CMAKE_CURRENT_BINARY_DIR}/advectio-link/lib${name}.so)
    add_custom_command(TARGET ${name} POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/advectio-link
      COMMAND ${CMAKE_C_COMPILER} -shared -fPIC -nostdlib -Wl,-soname,lib${name}.so -o ${stub} ${made}.stub.c)
  endif()
endfunction()

# advectio_test(NAME sources… DEPENDS targets…): one GoogleTest program of tests/, every TEST a ctest of its own.
function(advectio_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_executable(test_${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(test_${name} PRIVATE ${ARG_DEPENDS} advectio_flags GTest::gmock GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}: " DISCOVERY_TIMEOUT 60)
endfunction()
