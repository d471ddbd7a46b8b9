#!/usr/bin/env python3
"""The shipped JSON Schemas under an independent checker: every accepted fixture validates, every fixture
that is refused for its shape (NPJ-004, -005, -006) fails. Exit 77 without the jsonschema module."""
import json
import os
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("the Python module jsonschema is not installed")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMAS = os.path.join(HERE, "../../data/native-performance/schemas")
checkers = {}
for name in sorted(os.listdir(SCHEMAS)):
    schema = json.load(open(os.path.join(SCHEMAS, name)))
    Draft202012Validator.check_schema(schema)
    checkers[schema["title"]] = Draft202012Validator(schema)
assert len(checkers) == 15, len(checkers)

table = json.load(open(os.path.join(HERE, "fixtures/FIXTURES.json")))
accepted = refused = 0
for e in table:
    files = [a for a in e["args"] if a.endswith(".json") and os.path.exists(os.path.join(HERE, "fixtures", a))]
    shape = [c for c, _ in e["codes"] if c in ("NPJ-004", "NPJ-005", "NPJ-006")]
    good = e["exit"] in (0, 3, 4)
    for name in (files if good else files[:1] if shape else []):
        doc = json.load(open(os.path.join(HERE, "fixtures", name)))
        errors = list(checkers[doc["schema"]].iter_errors(doc))
        if good and errors:
            sys.exit("%s: %s" % (name, errors[0].message))
        if not good and not errors:
            sys.exit("%s is accepted by its schema" % name)
        accepted += good
        refused += not good
    golden = e.get("golden", "")
    if golden.endswith(".json"):
        doc = json.load(open(os.path.join(HERE, "fixtures", golden)))
        errors = list(checkers[doc.get("schema", "profile-next.v1")].iter_errors(doc))
        if errors:
            sys.exit("%s: %s" % (golden, errors[0].message))
        accepted += 1
for name in ("graph.json", "gem-h200.json"):
    doc = json.load(open(os.path.join(SCHEMAS, "..", name)))
    checkers[doc["schema"]].validate(doc)
    accepted += 1
print("%d documents accepted, %d refused by their schemas, as wanted" % (accepted, refused))
