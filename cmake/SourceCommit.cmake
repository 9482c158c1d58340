# PWMLFF_COMMIT: commit of the sources in PWMLFF_SOURCE, with -dirty behind it where files that git knows have
# changed since, empty where they are no checkout of git's.
# One that is given stays: sources of a wheel know theirs from its build.json (pwmlff build).

if(NOT PWMLFF_COMMIT)
  find_program(PWMLFF_GIT git)
  mark_as_advanced(PWMLFF_GIT)
  set(_said "")
  if(PWMLFF_GIT)
    # Prefix and commit: sources that lie in the folder of another repository have a prefix.
    execute_process(COMMAND ${PWMLFF_GIT} rev-parse --show-prefix HEAD
      WORKING_DIRECTORY ${PWMLFF_SOURCE} OUTPUT_VARIABLE _said ERROR_QUIET)
  endif()
  set(PWMLFF_COMMIT "")
  if(_said MATCHES "^\n([0-9a-f]+)\n$")
    set(PWMLFF_COMMIT ${CMAKE_MATCH_1})
    execute_process(COMMAND ${PWMLFF_GIT} diff --quiet HEAD
      WORKING_DIRECTORY ${PWMLFF_SOURCE} RESULT_VARIABLE _changed ERROR_QUIET)
    if(_changed EQUAL 1)
      string(APPEND PWMLFF_COMMIT -dirty)
    endif()
  endif()
endif()
