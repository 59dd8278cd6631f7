# libxsmm as a static archive: 1.17 (Debian) or 2.x.
#
#   Libxsmm::libxsmm     for the library itself
#   LIBXSMM_LINK_NAMES   what a user of a static library over it links, in this order, by plain
#                        names
#   LIBXSMM_LINK_DIRS    where those are, if not in a default directory
#   LIBXSMM_IS_2         the 2.x API (compile definition SINTER_LIBXSMM_2=1)

find_path(LIBXSMM_INCLUDE_DIR libxsmm.h)
find_library(LIBXSMM_LIBRARY libxsmm.a)
mark_as_advanced(LIBXSMM_INCLUDE_DIR LIBXSMM_LIBRARY)

if(LIBXSMM_INCLUDE_DIR AND LIBXSMM_LIBRARY)
    # Snapshots between 1.17 and 2.0 call themselves 1.17-NNNN and have the 2.0 API, so the compiler
    # is asked, not the version header.
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${LIBXSMM_INCLUDE_DIR})
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    check_c_source_compiles("
        #include <libxsmm.h>
        libxsmm_gemm_shape probe(void);
        libxsmm_gemm_shape probe(void) {
            return libxsmm_create_gemm_shape(1, 1, 1, 1, 1, 1,
                LIBXSMM_DATATYPE_F32, LIBXSMM_DATATYPE_F32,
                LIBXSMM_DATATYPE_F32, LIBXSMM_DATATYPE_F32);
        }" LIBXSMM_IS_2)
    unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
    unset(CMAKE_REQUIRED_INCLUDES)
    get_filename_component(LIBXSMM_LIBRARY_DIR ${LIBXSMM_LIBRARY} DIRECTORY)
    if(NOT LIBXSMM_IS_2)
        # 1.17 refers to BLAS; this archive has stubs. It must come after libxsmm, not before it as
        # its own .pc file says.
        find_library(LIBXSMM_NOBLAS_LIBRARY libxsmmnoblas.a HINTS ${LIBXSMM_LIBRARY_DIR})
        mark_as_advanced(LIBXSMM_NOBLAS_LIBRARY)
        set(libxsmm_noblas_var LIBXSMM_NOBLAS_LIBRARY)
    endif()
    file(STRINGS ${LIBXSMM_INCLUDE_DIR}/libxsmm_version.h libxsmm_version_line
        REGEX "define LIBXSMM_CONFIG_VERSION ")
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" Libxsmm_VERSION "${libxsmm_version_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libxsmm REQUIRED_VARS LIBXSMM_LIBRARY LIBXSMM_INCLUDE_DIR
    ${libxsmm_noblas_var} VERSION_VAR Libxsmm_VERSION
    REASON_FAILURE_MESSAGE "on Debian or Ubuntu: apt-get install libxsmm-dev")

if(Libxsmm_FOUND AND NOT TARGET Libxsmm::libxsmm)
    set(LIBXSMM_LINK_NAMES xsmm)
    set(libxsmm_files ${LIBXSMM_LIBRARY})
    if(NOT LIBXSMM_IS_2)
        list(APPEND LIBXSMM_LINK_NAMES xsmmnoblas)
        list(APPEND libxsmm_files ${LIBXSMM_NOBLAS_LIBRARY})
    endif()
    set(LIBXSMM_LINK_DIRS "")
    if(NOT LIBXSMM_LIBRARY_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        set(LIBXSMM_LINK_DIRS ${LIBXSMM_LIBRARY_DIR})
    endif()
    add_library(Libxsmm::libxsmm INTERFACE IMPORTED)
    target_include_directories(Libxsmm::libxsmm SYSTEM INTERFACE ${LIBXSMM_INCLUDE_DIR})
    target_link_libraries(Libxsmm::libxsmm INTERFACE ${libxsmm_files} m)
    if(LIBXSMM_IS_2)
        target_compile_definitions(Libxsmm::libxsmm INTERFACE SINTER_LIBXSMM_2=1)
    endif()
endif()
