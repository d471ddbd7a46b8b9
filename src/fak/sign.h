/* sign.h - detached SSH signatures over the canonical digest of a document, by ssh-keygen -Y in the
 * namespace gem-evidence. No cryptography of our own; the key never passes through this program. */
#ifndef GEM_FAK_SIGN_H
#define GEM_FAK_SIGN_H

#include "fak/doc.h"

#define FAK_SIGN_NAMESPACE "gem-evidence"

/* Write <path>.sig. False: findings NPX-001 (ssh-keygen could not sign) or NPI. */
bool fak_sign(const char *path, const char *key, const gem_json *root, fak_findings *f);
/* Check <path>.sig with the public keys of allowed_signers; NPX-002 when it does not hold. */
bool fak_verify_signature(const char *path, const char *allowed_signers, const gem_json *root,
                          fak_findings *f);

#endif
