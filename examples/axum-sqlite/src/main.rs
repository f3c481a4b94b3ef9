//! Notes in a SQLite database: an axum `Router` with sqlx and the layers of tower-http, served by
//! linerate.
//!
//! ```text
//! cargo run -- notes.db 127.0.0.1:8080
//! curl -d '{"text":"buy milk"}' -H 'Content-Type: application/json' http://127.0.0.1:8080/notes
//! curl 'http://127.0.0.1:8080/notes?contains=milk'
//! ```

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use linerate_serve::{Handle, ServerOptions, spawn_with, tower};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// Most notes of a response.
const MOST: u32 = 100;

#[derive(Debug, Serialize)]
struct Note {
    id: i64,
    text: String,
}

#[derive(Deserialize)]
struct NewNote {
    text: String,
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    contains: String,
    limit: Option<u32>,
}

/// A failure of the database is logged, and is 500 for the client.
struct Failed(sqlx::Error);

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Failed {
        Failed(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("the database failed: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

async fn add(pool: &SqlitePool, text: String) -> Result<(StatusCode, Json<Note>), Failed> {
    let insert = "INSERT INTO notes (text) VALUES (?) RETURNING id";
    let (id,): (i64,) = sqlx::query_as(insert).bind(&text).fetch_one(pool).await?;
    Ok((StatusCode::CREATED, Json(Note { id, text })))
}

async fn add_json(
    State(pool): State<SqlitePool>,
    Json(note): Json<NewNote>,
) -> Result<(StatusCode, Json<Note>), Failed> {
    add(&pool, note.text).await
}

async fn add_form(
    State(pool): State<SqlitePool>,
    Form(note): Form<NewNote>,
) -> Result<(StatusCode, Json<Note>), Failed> {
    add(&pool, note.text).await
}

async fn search(
    State(pool): State<SqlitePool>,
    Query(search): Query<Search>,
) -> Result<Json<Vec<Note>>, Failed> {
    let select = "SELECT id, text FROM notes WHERE instr(text, ?) > 0 ORDER BY id LIMIT ?";
    let query = sqlx::query_as(select).bind(search.contains).bind(search.limit.unwrap_or(MOST).min(MOST));
    let rows: Vec<(i64, String)> = query.fetch_all(&pool).await?;
    Ok(Json(rows.into_iter().map(|(id, text)| Note { id, text }).collect()))
}

async fn one(State(pool): State<SqlitePool>, Path(id): Path<i64>) -> Result<Response, Failed> {
    let query = sqlx::query_as("SELECT text FROM notes WHERE id = ?").bind(id);
    let row: Option<(String,)> = query.fetch_optional(&pool).await?;
    Ok(row.map_or(StatusCode::NOT_FOUND.into_response(), |(text,)| Json(Note { id, text }).into_response()))
}

fn app(pool: SqlitePool) -> Router {
    Router::new()
        .route("/notes", get(search).post(add_json))
        .route("/notes/form", post(add_form))
        .route("/notes/{id}", get(one))
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(Any))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(5)))
        .layer(TraceLayer::new_for_http())
        .with_state(pool)
}

/// Opens the database. The pool lives in the runtime of the caller.
async fn open(path: &str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(path)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(2));
    let pool = SqlitePoolOptions::new().acquire_timeout(Duration::from_secs(2)).connect_with(options).await?;
    let table = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
    sqlx::query(table).execute(&pool).await?;
    Ok(pool)
}

/// Serves in the caller's runtime: handlers, their timers and their tasks run there.
fn serve(options: ServerOptions, pool: SqlitePool) -> std::io::Result<Handle> {
    // Each thread makes its own router; the pool is shared.
    spawn_with(options, move || tower(app(pool.clone()).with_state(())))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "notes.db".to_owned());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let pool = open(&path).await?;
    let options = ServerOptions { listen: vec![listen.parse()?], ..ServerOptions::default() };
    let server = serve(options, pool.clone())?;
    println!("listening on http://{}", server.addr());
    let stop = async {
        // Without the signal there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
    };
    server.stop_on(stop).await;
    pool.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// Sends a request and reads to the end, on a thread beside the runtime.
    async fn ask(server: &Handle, line: &str, kind: &str, body: &str) -> String {
        let at = server.addr();
        let fields = "Host: h\r\nOrigin: https://app.example\r\nConnection: close";
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\n{fields}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
        let call = move || {
            let mut stream = TcpStream::connect(at)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(request.as_bytes())?;
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&all).into_owned())
        };
        tokio::task::spawn_blocking(call).await.expect("no panic").expect("a response")
    }

    async fn get(server: &Handle, path: &str) -> String {
        ask(server, &format!("GET {path}"), "text/plain", "").await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn notes_are_kept_in_the_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.db").display().to_string();
        let pool = open(&path).await.expect("opened");
        let server = serve(ServerOptions::default(), pool.clone()).expect("started");
        let (json, form) = ("application/json", "application/x-www-form-urlencoded");
        let added = ask(&server, "POST /notes", json, r#"{"text":"buy milk"}"#).await;
        assert!(added.starts_with("HTTP/1.1 201") && added.contains(r#""id":1"#), "{added}");
        assert!(added.contains("access-control-allow-origin: *"), "{added}");
        let added = ask(&server, "POST /notes/form", form, "text=call+the+bank").await;
        assert!(added.contains(r#"{"id":2,"text":"call the bank"}"#), "{added}");
        let wrong = ask(&server, "POST /notes", json, "{}").await;
        assert!(wrong.starts_with("HTTP/1.1 422"), "{wrong}");
        assert!(get(&server, "/notes/1").await.ends_with(r#"{"id":1,"text":"buy milk"}"#));
        assert!(get(&server, "/notes/3").await.starts_with("HTTP/1.1 404"));
        let found = get(&server, "/notes?contains=bank&limit=5").await;
        assert!(found.contains("call the bank") && !found.contains("milk"), "{found}");
        assert!(get(&server, "/notes?limit=many").await.starts_with("HTTP/1.1 400"));
        server.stop_on(async {}).await;
        pool.close().await;
        // Another process finds them.
        let pool = open(&path).await.expect("opened again");
        let (count,): (i64,) =
            sqlx::query_as("SELECT count(*) FROM notes").fetch_one(&pool).await.expect("counted");
        assert_eq!(count, 2);
    }
}
