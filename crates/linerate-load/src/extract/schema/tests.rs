use serde_json::json;

use super::*;
use crate::limits::{SCHEMA_BYTES, SCHEMA_IN_PLACE, SCHEMA_NODES};

fn compiled(schema: &serde_json::Value) -> JsonSchema {
    JsonSchema::parse(&schema.to_string()).unwrap_or_else(|why| panic!("{schema}: {why}"))
}

fn refused(schema: &serde_json::Value) -> String {
    JsonSchema::parse(&schema.to_string()).err().unwrap_or_else(|| panic!("{schema} is taken"))
}

#[test]
fn keywords_of_values_ask_for_what_they_mean() {
    for (schema, good, bad) in [
        (json!({"type": ["integer", "null"]}), json!([1, 2.0, null]), json!([1.5, "1", true, [], {}])),
        (
            json!({"enum": [1, "a", {"b": [2]}]}),
            json!([1.0, "a", {"b": [2.0]}]),
            json!([true, "A", {"b": 2}]),
        ),
        (json!({"const": null}), json!([null]), json!([false, 0, ""])),
        (json!({"minimum": 1, "exclusiveMaximum": 2}), json!([1, 1.999, "3"]), json!([0.999, 2, 2.0])),
        (json!({"exclusiveMinimum": 0.5, "maximum": 7}), json!([0.6, 7]), json!([0.5, 8])),
        (json!({"multipleOf": 0.01}), json!([4.02, 0, -3]), json!([0.001])),
        (json!({"minLength": 2, "maxLength": 3}), json!(["é€", "abc", 1]), json!(["é", "abcd"])),
        (json!({"pattern": "^\\d+[[&]$"}), json!(["12[", "3&"]), json!(["٣[", "a", "1]"])),
        (json!({"required": ["a"]}), json!([{"a": null}, 1]), json!([{}, {"A": 1}])),
        (
            json!({"properties": {"a": {"type": "string"}}, "patternProperties": {"^x": true}, "additionalProperties": false}),
            json!([{}, {"a": "", "x1": 1}]),
            json!([{"a": 1}, {"b": 1}]),
        ),
        (
            json!({"propertyNames": {"maxLength": 2}, "minProperties": 1}),
            json!([{"ab": 1}]),
            json!([{}, {"abc": 1}]),
        ),
        (json!({"dependentRequired": {"a": ["b"]}}), json!([{}, {"a": 1, "b": 2}]), json!([{"a": 1}])),
        (
            json!({"prefixItems": [{"type": "string"}], "items": false}),
            json!([[], ["a"]]),
            json!([[1], ["a", 2]]),
        ),
        (
            json!({"items": {"minimum": 3}, "minItems": 1, "maxItems": 2}),
            json!([[3], [3, 4]]),
            json!([[], [2], [3, 3, 3]]),
        ),
        (
            json!({"uniqueItems": true}),
            json!([[1, "1", [1]]]),
            json!([[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
        ),
        (
            json!({"contains": {"const": 1}, "maxContains": 2}),
            json!([[1], [1, 2, 1]]),
            json!([[], [2], [1, 1, 1]]),
        ),
    ] {
        assert_holds(&schema, &good, &bad);
    }
}

#[test]
fn keywords_of_schemas_ask_for_what_they_mean() {
    let tree = json!({
        "$ref": "#/$defs/tree",
        "$defs": {"tree": {"type": "object", "required": ["leaf"], "properties": {"sub": {"$ref": "#/$defs/tree"}}}},
    });
    for (schema, good, bad) in [
        (json!({"allOf": [{"minimum": 1}, {"maximum": 3}]}), json!([1, 3]), json!([0, 4])),
        (json!({"anyOf": [{"const": 1}, {"type": "string"}]}), json!([1, ""]), json!([2, null])),
        (json!({"oneOf": [{"minimum": 1}, {"maximum": 3}]}), json!([0, 4]), json!([2])),
        (json!({"not": {"type": "null"}}), json!([1]), json!([null])),
        (
            json!({"if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"minimum": 1}}),
            json!([5, 20]),
            json!([15, 0]),
        ),
        (tree, json!([{"leaf": 1, "sub": {"leaf": 2}}]), json!([{"leaf": 1, "sub": {"sub": {}}}])),
        (json!(true), json!([1, null]), json!([])),
        (json!(false), json!([]), json!([1, null])),
    ] {
        assert_holds(&schema, &good, &bad);
    }
}

/// The schema takes each of the first, and none of the second.
fn assert_holds(schema: &serde_json::Value, good: &serde_json::Value, bad: &serde_json::Value) {
    let schema_of = compiled(schema);
    for value in good.as_array().unwrap() {
        assert_eq!(schema_of.problem_of(value), None, "{schema}: {value}");
    }
    for value in bad.as_array().unwrap() {
        assert!(schema_of.problem_of(value).is_some(), "{schema}: {value}");
    }
}

#[test]
fn drafts_differ_in_what_stands_beside_a_reference_and_in_arrays_of_items() {
    const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
    let items =
        json!({"$schema": DRAFT_7, "items": [{"type": "string"}], "additionalItems": {"type": "null"}});
    let items = compiled(&items);
    assert_eq!(items.problem_of(&json!(["a", null])), None);
    assert_eq!(items.problem_of(&json!(["a", 1])).unwrap(), "/1 is 1, and must be null");
    let beside = |version: &str| {
        json!({"$schema": version, "properties": {"a": {"$ref": "#/definitions/text", "maxLength": 1}},
               "definitions": {"text": {"type": "string"}}})
    };
    let body = json!({"a": "long"});
    assert_eq!(compiled(&beside(DRAFT_7)).problem_of(&body), None);
    let newer = compiled(&beside("https://json-schema.org/draft/2020-12/schema"));
    assert_eq!(newer.problem_of(&body).unwrap(), "/a has 4 characters, and must have at most 1 characters");
}

#[test]
fn problems_name_the_place_in_the_body_and_what_is_wanted() {
    let schema = compiled(&json!({
        "type": "object",
        "required": ["id", "items"],
        "properties": {
            "id": {"type": "integer"},
            "a/b~c": {"enum": ["x", "y"]},
            "items": {"type": "array", "items": {"required": ["sku"], "properties": {"n": {"minimum": 1}}}},
        },
    }));
    for (body, problem) in [
        ("{\"id\":1,\"items\":[{\"sku\":\"a\"}]}", None),
        ("[]", Some("the body is an array of 0, and must be object")),
        ("{\"items\":[]}", Some("the body has no member \"id\", which is required")),
        ("{\"id\":1.5,\"items\":[]}", Some("/id is 1.5, and must be integer")),
        (
            "{\"a/b~c\":\"z\",\"id\":1,\"items\":[]}",
            Some("/a~1b~0c is \"z\", and must be one of \"x\", \"y\""),
        ),
        (
            "{\"id\":\"1\",\"items\":[{\"n\":0},{},{},{}]}",
            Some(
                "/id is \"1\", and must be integer; /items/0 has no member \"sku\", which is required; \
                 /items/0/n is 0, and must be at least 1",
            ),
        ),
        ("", Some("the body is empty, and must be JSON")),
        ("{\"id\":}", Some("the body is not JSON: expected value at line 1 column 7")),
    ] {
        assert_eq!(schema.problem(body.as_bytes()).as_deref(), problem, "{body}");
    }
    let any = compiled(&json!({"items": {"anyOf": [{"type": "string"}, {"minimum": 3}]}}));
    let said = any.problem_of(&json!([3, 2])).unwrap();
    assert_eq!(said, "/1 is 2, and agrees with none of the 2 schemas of anyOf");
}

#[test]
fn what_is_not_supported_is_refused_with_its_place() {
    for (schema, said) in [
        (
            json!({"properties": {"a": {"unevaluatedProperties": false}}}),
            "#/properties/a/unevaluatedProperties: is not",
        ),
        (json!({"requierd": ["a"]}), "#/requierd: is no keyword that is known here"),
        (json!({"items": {"$dynamicRef": "#a"}}), "#/items/$dynamicRef: is not supported; write $ref"),
        (json!({"$ref": "item.json#/a"}), "#/$ref: \"item.json#/a\" leads out of this schema"),
        (json!({"$ref": "#item"}), "#/$ref: \"#item\" names an anchor"),
        (json!({"$ref": "#/$defs/a"}), "#/$ref: \"#/$defs/a\" leads to nothing"),
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
            "#/$schema: \"http://json-schema.org/draft-04",
        ),
        (json!({"$defs": {"a": {"$id": "x", "b": true}}, "$ref": "#/$defs/a/b"}), "leads below another $id"),
        (json!({"items": {"$id": "x"}}), "#/items/$id: is not supported below the root"),
        (
            json!({"minimum": 1, "exclusiveMinimum": true}),
            "#/exclusiveMinimum: must be a number, as since draft-06",
        ),
        (json!({"pattern": "(?=a)"}), "#/pattern: \"(?=a)\" is no regular expression"),
        (json!({"patternProperties": {"(": true}}), "#/patternProperties/(: "),
        (json!({"type": "int"}), "#/type: must be one or more of null, boolean"),
        (json!({"type": "string", "nullable": true}), "#/nullable: is OpenAPI's"),
        (json!({"multipleOf": 0}), "#/multipleOf: must be greater than 0"),
        (json!({"anyOf": []}), "#/anyOf: is empty"),
        (json!({"maxItems": -1}), "#/maxItems: must be a whole number of at least 0"),
        (json!({"properties": {"a": 3}}), "#/properties/a: a schema is an object, true or false"),
        (json!([]), "#: a schema is an object"),
        (json!({"$ref": "#"}), "#: leads back to itself without end"),
        (
            json!({"$defs": {"a": {"anyOf": [{"not": {"$ref": "#/$defs/a"}}]}}, "items": {"$ref": "#/$defs/a"}}),
            "back to itself",
        ),
    ] {
        let why = refused(&schema);
        assert!(why.contains(said), "{schema}: {why}");
    }
    let why = JsonSchema::parse("{\"type\":\n}").unwrap_err();
    assert_eq!(why, "not JSON: expected value at line 2 column 1");
    // What only says something is taken.
    compiled(
        &json!({"title": "a", "format": "date", "x-owner": 1, "default": {"type": 3}, "$defs": {"a": 3}}),
    );
}

#[test]
fn limits_hold() {
    let chain = |n: usize| (0..n).fold(json!({"type": "null"}), |inner, _| json!({"allOf": [inner]}));
    assert_eq!(compiled(&chain(SCHEMA_IN_PLACE - 1)).problem_of(&json!(null)), None);
    assert!(refused(&chain(SCHEMA_IN_PLACE)).contains("within each other for one value"));
    let wide: serde_json::Map<_, _> = (0..SCHEMA_NODES).map(|n| (n.to_string(), json!(true))).collect();
    assert!(refused(&json!({"properties": wide})).contains("schemas in it"));
    assert!(refused(&json!({"title": "a".repeat(SCHEMA_BYTES)})).contains("larger than 1 MiB"));
    assert!(refused(&json!({"properties": {"a".repeat(3000): {}}})).contains("more than 1024 bytes"));
    // As deep as a body may be, on the stack of a thread.
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let array = compiled(
        &json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}),
    );
    assert_eq!(array.problem(deep.as_bytes()), None);
    // Ten calls for each level of the body.
    let chained = json!({"type": "array", "items": {"$ref": "#"}});
    let chained = (0..9).fold(chained, |inner, _| json!({"allOf": [inner]}));
    let said = compiled(&chained).problem(deep.as_bytes()).unwrap();
    assert!(said.starts_with("more than 400 schemas within each other at /0/0/"), "{said}");
    assert!(array.problem("[".repeat(200).as_bytes()).unwrap().contains("recursion limit"));
    // Two ways at each level: 2^127 of them.
    let twice = json!({"type": "array", "allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]});
    let said = compiled(&twice).problem(deep.as_bytes()).unwrap();
    assert!(said.contains("8000000 steps"), "{said}");
    // No two of many items are compared one by one.
    let many: Vec<_> = (0..200_000).collect();
    assert_eq!(compiled(&json!({"uniqueItems": true})).problem_of(&json!(many)), None);
}
