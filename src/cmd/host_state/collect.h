/* collect.h - asking this machine; the answers are texts (evidence/host_state.h). */
#ifndef GEM_HOST_STATE_COLLECT_H
#define GEM_HOST_STATE_COLLECT_H

#include "evidence/host_state.h"

/* Takes interval_ms and a little more. */
void host_collect_linux(ev_host_recording *r, int interval_ms);
void host_collect_macos(ev_host_recording *r);
/* Files by the names of ev_host_text_names; a missing file is a missing answer. */
gem_status host_collect_folder(ev_host_recording *r, const char *folder, gem_error *err);
gem_status host_save_folder(const ev_host_recording *r, const char *folder, gem_error *err);

#endif
