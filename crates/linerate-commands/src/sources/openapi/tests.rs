//! Descriptions as they are found in the wild, in small.

use super::*;

const SHOP: &str = r##"
openapi: 3.0.3
info: { title: Shop, version: "1" }
servers:
  - url: "http://{host}:8080/v1/"
    variables: { host: { default: shop.example } }
security: [{ token: [] }]
paths:
  /users/{id}:
    parameters:
      - { name: id, in: path, required: true, schema: { type: integer, minimum: 100 } }
      - { name: X-Trace, in: header, required: true, schema: { type: string, format: uuid } }
    get:
      operationId: getUser
      security: []
      parameters:
        - { name: fields, in: query, example: [name, "e mail"], schema: { type: array, items: { type: string } } }
        - { name: page, in: query, schema: { type: integer } }
        - { name: filter, in: query, required: true, style: deepObject, schema: { type: object, properties: { "a b": { const: "1&2" } } } }
        - { name: session, in: cookie, required: true, example: "{{abc}}" }
        - { name: Accept, in: header, required: true, example: x }
    delete: {}
    post:
      requestBody:
        $ref: "#/components/requestBodies/User"
  /search:
    get:
      parameters:
        - { name: q, in: query, required: true, explode: false, example: [1, 2] }
        - { name: when, in: query, required: true, content: { application/json: { schema: { type: object, properties: { from: { const: 1 } } } } } }
        - $ref: "#/components/parameters/Limit"
  /files/{name}:
    get: {}
    put: { requestBody: { required: true, content: { application/octet-stream: {} } } }
  /forms:
    post:
      requestBody:
        content:
          application/x-www-form-urlencoded:
            examples: { one: { value: { a: "x y", b: [1, 2] } } }
  /codes/{code}:
    get:
      parameters: [{ name: code, in: path, required: true, schema: { type: string, pattern: "[A-Z]{3}" } }]
  /matrix/{m}:
    get:
      parameters: [{ name: m, in: path, required: true, style: matrix, schema: { type: integer } }]
  /elsewhere:
    get: { servers: [{ url: "http://other.example" }] }
components:
  parameters:
    Limit: { name: limit, in: query, required: true, schema: { type: integer, default: 20 } }
  requestBodies:
    User:
      required: true
      content:
        application/json: { schema: { $ref: "#/components/schemas/User" } }
  schemas:
    User:
      type: object
      required: [name]
      properties:
        id: { type: integer, readOnly: true }
        name: { type: string, example: "Ada {{x}}" }
        born: { type: string, format: date, nullable: true }
  securitySchemes:
    token: { type: http, scheme: bearer }
"##;

fn read(text: &str, unsafe_methods: bool) -> Result<PlanSource, String> {
    parse(text, Path::new("api.yaml"), Options { unsafe_methods }).map_err(|e| e.to_string())
}

fn shown(source: &PlanSource) -> String {
    let mut shown = format!("{:?}\n", source.url);
    for r in &source.requests {
        shown += &format!("\n[{}]\n{} {}\n", r.name, r.method, r.path);
        shown.extend(r.fields.iter().map(|(n, v)| format!("{n}: {v}\n")));
        shown.extend(r.body.iter().map(|b| format!("\n{}\n", String::from_utf8_lossy(&b.to_vec()))));
    }
    shown + "\n" + &source.notes.join("\n")
}

#[test]
fn safe_operations_only() {
    insta::assert_snapshot!(shown(&read(SHOP, false).unwrap()));
}

#[test]
fn all_operations_when_asked() {
    insta::assert_snapshot!(shown(&read(SHOP, true).unwrap()));
}

#[test]
fn json_in_the_order_of_the_file() {
    let text = r#"{"openapi": "3.1.0", "paths": {"/z": {"get": {}}, "/a": {"get": {}, "head": {}}}}"#;
    let source = read(text, false).unwrap();
    let names: Vec<&str> = source.requests.iter().map(|r| r.name.as_str()).collect();
    assert_eq!((names, source.url, source.notes), (vec!["GET /z", "GET /a", "HEAD /a"], None, vec![]));
}

#[test]
fn servers() {
    let url = |servers: &str| {
        let source =
            read(&format!("openapi: 3.0.0\nservers: {servers}\npaths: {{ /x: {{ get: {{}} }} }}"), false)?;
        Ok::<_, String>((source.url, source.requests[0].path.clone()))
    };
    let ok = |url: Option<&str>, path: &str| Ok((url.map(str::to_owned), path.to_owned()));
    assert_eq!(url("[]"), ok(None, "/x"));
    assert_eq!(url("[{ url: / }]"), ok(None, "/x"));
    assert_eq!(url("[{ url: /api/v1/ }]"), ok(None, "/api/v1/x"));
    assert_eq!(url("[{ url: api }]"), ok(None, "/api/x"));
    assert_eq!(url("[{ url: 'https://h' }, { url: 'http://other' }]"), ok(Some("https://h"), "/x"));
    assert_eq!(url("[{ url: 'http://h:80/a' }]"), ok(Some("http://h"), "/a/x"));
    assert!(url("[{ url: 'http://{h}/' }]").unwrap_err().contains("without a default"));
    assert!(url("[{ url: 'ftp://h/' }]").unwrap_err().contains("unknown scheme"));
}

#[test]
fn styles_of_parameters() {
    for (parameter, path) in [
        ("{ name: x, in: query, required: true, example: 5 }", "/?x=5"),
        ("{ name: x, in: query, required: true, example: [1, 2] }", "/?x=1&x=2"),
        ("{ name: x, in: query, required: true, explode: false, example: [1, 2] }", "/?x=1,2"),
        ("{ name: x, in: query, required: true, style: pipeDelimited, example: [1, 2] }", "/?x=1%7C2"),
        ("{ name: x, in: query, required: true, style: spaceDelimited, example: [1, 2] }", "/?x=1%202"),
        ("{ name: x, in: query, required: true, example: { a: 1, b: 2 } }", "/?a=1&b=2"),
        ("{ name: x, in: query, required: true, explode: false, example: { a: 1, b: 2 } }", "/?x=a,1,b,2"),
        ("{ name: x, in: query, required: true, style: deepObject, example: { a: 1 } }", "/?x%5Ba%5D=1"),
        ("{ name: x, in: query, required: true, example: 'a/b&c' }", "/?x=a%2Fb%26c"),
        ("{ name: x, in: query, required: true, allowReserved: true, example: 'a/b&c' }", "/?x=a/b%26c"),
        ("{ name: x, in: query, examples: { one: { value: v } } }", "/?x=v"),
        ("{ name: x, in: query, schema: { type: integer, example: 5 } }", "/"),
        (
            "{ name: x, in: query, required: true, content: { application/json: { example: { a: 1 } } } }",
            "/?x=%7B%22a%22%3A1%7D",
        ),
    ] {
        let text = format!("openapi: 3.0.0\npaths: {{ /: {{ get: {{ parameters: [{parameter}] }} }} }}");
        assert_eq!(
            read(&text, false).map(|s| s.requests[0].path.clone()),
            Ok(path.to_owned()),
            "{parameter}"
        );
    }
}

#[test]
fn errors_name_the_place() {
    let cases = [
        "",
        "hello",
        "{\"openapi\": \"3.0.0\",\n}",
        "openapi: 3.0.0\npaths:\n  - [\n",
        "openapi: 3.0.0\nopenapi: 3.0.1\n",
        "swagger: '2.0'\npaths: {}",
        "openapi: 4.0.0",
        "info: {}",
        "openapi: 3.0.0",
        "openapi: 3.0.0\npaths: { /x: { post: {}, delete: {} } }",
        "openapi: 3.0.0\npaths: { '/x/{id}': { get: {} }, /y: { $ref: 'other.yaml' }, /z: { $ref: '#/paths/~1q' } }",
    ];
    let mut said: String = cases.iter().map(|text| format!("{}\n", read(text, false).unwrap_err())).collect();
    said += &load(Path::new("no/such.yaml"), Options::default()).unwrap_err().to_string();
    insta::assert_snapshot!(said);
}

#[test]
fn aliases_cannot_fill_the_memory() {
    let mut text = "openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let list = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{list}]\n");
    }
    assert!(read(&text, false).is_err());
}

#[test]
fn an_optional_body_that_cannot_be_made_is_named() {
    let operation = |body: &str| {
        let text = format!(
            "openapi: 3.0.0\npaths:\n  /upload:\n    post: {{ requestBody: {{ {body}content: {{ multipart/form-data: {{ schema: \
             {{ type: object }} }} }} }} }}\n  /z: {{ get: {{}} }}\n"
        );
        read(&text, true).unwrap()
    };
    let source = operation("");
    assert!(source.requests.iter().any(|r| r.method == "POST" && r.body.is_none()));
    let words = "api.yaml: 1 operation is sent without a body, which is optional and cannot be made: POST /upload (its body is multipart/form-data)";
    assert_eq!(source.notes, [words]);
    let source = operation("required: true, ");
    assert_eq!(
        source.notes,
        ["api.yaml: 1 operation is left out: POST /upload (its body is multipart/form-data)"]
    );
}
