//! Tables in Markdown.

/// A table with its header; empty if it has no rows.
pub fn as_table(head: &str, rows: &[String]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = head.matches('|').count() - 1;
    format!("\n{head}\n|{}\n{}\n", " --- |".repeat(columns), rows.join("\n"))
}
