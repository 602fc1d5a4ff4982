# What every target of the project shares, and the one function by which a folder of src/ becomes a library.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
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

# advectio_folder(NAME sources… DEPENDS targets…): static library advectio_NAME out of one folder of src/.
function(advectio_folder name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_library(advectio_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(advectio_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(advectio_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(advectio_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:advectio_flags>)
endfunction()

# advectio_test(NAME sources… DEPENDS targets…): one GoogleTest program of tests/, every TEST a ctest of its own.
function(advectio_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_executable(test_${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(test_${name} PRIVATE ${ARG_DEPENDS} advectio_flags GTest::gmock GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}: " DISCOVERY_TIMEOUT 60)
endfunction()
