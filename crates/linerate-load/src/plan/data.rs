//! Data files: CSV with a header line, read into memory whole.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use linerate_net::InputFile;

use super::limits::{MAX_CSV_BYTES, MAX_CSV_COLUMNS, MAX_CSV_ROWS};
use super::units::quoted;
use super::{DataSet, InvalidPlan};

/// Reads a CSV file (RFC 4180) whose first line names the columns. Errors name the file and the
/// line.
pub fn load_csv(name: &str, path: &Path) -> Result<DataSet, InvalidPlan> {
    let shown = path.display().to_string();
    let file = InputFile::open(path).map_err(|e| format!("{shown}: cannot be read: {}", said(&e)))?;
    if file.metadata().is_dir() {
        return Err(format!("{shown}: is a directory, not a CSV file").into());
    }
    let mut text = Vec::new();
    file.take(MAX_CSV_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|e| format!("{shown}: cannot be read: {}", said(&e)))?;
    if text.len() as u64 > MAX_CSV_BYTES {
        return Err(format!(
            "{shown}: is larger than {} MiB, the most that is held in memory",
            MAX_CSV_BYTES >> 20
        )
        .into());
    }
    parse_csv(name, &text, &shown)
}

/// As [`load_csv`], of bytes; `shown` is how errors name them.
pub fn parse_csv(name: &str, text: &[u8], shown: &str) -> Result<DataSet, InvalidPlan> {
    Ok(parse_rows(name, text, shown, MAX_CSV_ROWS)?)
}

fn parse_rows(name: &str, text: &[u8], shown: &str, most: usize) -> Result<DataSet, String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let header = reader.headers().map_err(|e| wrong(shown, &e))?.clone();
    let columns: Vec<String> = header.iter().map(|c| c.trim().to_owned()).collect();
    check_columns(&columns).map_err(|why| format!("{shown}:1: {why}"))?;
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| wrong(shown, &e))? {
        if record.len() != columns.len() {
            let line = record.position().map_or(0, csv::Position::line);
            let fields =
                if record.len() == 1 { "1 field".to_owned() } else { format!("{} fields", record.len()) };
            let names = columns.join(",");
            return Err(format!(
                "{shown}:{line}: has {fields}, but line 1 names {} columns: {names}",
                columns.len()
            ));
        }
        if rows.len() == most {
            return Err(format!("{shown}: has more than {most} rows, the most that are held in memory"));
        }
        rows.push(record.iter().map(str::to_owned).collect());
    }
    if rows.is_empty() {
        return Err(format!("{shown}: names columns in line 1, but no row follows"));
    }
    Ok(DataSet { name: name.to_owned(), columns, rows })
}

/// Whether these can be the columns of a data set.
pub(super) fn check_columns(columns: &[String]) -> Result<(), String> {
    if columns.is_empty() || columns.iter().all(String::is_empty) {
        return Err("there are no columns; the first line names them".to_owned());
    }
    if columns.len() > MAX_CSV_COLUMNS {
        return Err(format!("there are {} columns; at most {MAX_CSV_COLUMNS} are possible", columns.len()));
    }
    let mut seen = BTreeSet::new();
    for (index, column) in columns.iter().enumerate() {
        if column.is_empty() {
            return Err(format!("column {} has no name", index + 1));
        }
        if column.contains(['{', '}']) || column.chars().any(char::is_control) {
            return Err(format!("{} cannot be named in a slot; take another name", quoted(column)));
        }
        if !seen.insert(column) {
            return Err(format!("two columns are named {}", quoted(column)));
        }
    }
    Ok(())
}

/// Whether this can be the name of a data set.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(good) {
        true if name == super::env::NAME => {
            Err(format!("{} names variables of the environment; name the data otherwise", quoted(name)))
        }
        true => Ok(()),
        false => Err(format!("{} is no name for data; use letters, digits, - and _", quoted(name))),
    }
}

fn wrong(shown: &str, error: &csv::Error) -> String {
    let at = error.position().map_or_else(String::new, |p| format!(":{}", p.line()));
    match error.kind() {
        csv::ErrorKind::Utf8 { err, .. } => {
            format!("{shown}{at}: field {} is not UTF-8 text; save the file as UTF-8", err.field() + 1)
        }
        csv::ErrorKind::Io(e) => format!("{shown}{at}: cannot be read: {}", said(e)),
        _ => format!("{shown}{at}: {error}"),
    }
}

/// An I/O error without its number.
pub(super) fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DataSet, String> {
        Ok(parse_csv("csv", text.as_bytes(), "users.csv")?)
    }

    #[test]
    fn reads_quotes_blank_lines_and_a_byte_order_mark() {
        let set = parse("\u{feff}id, name \r\n1,\"a,\"\"b\"\"\r\nc\"\r\n\r\n2,\n").unwrap();
        assert_eq!(set.columns, ["id", "name"]);
        assert_eq!(set.rows, [["1", "a,\"b\"\r\nc"], ["2", ""]]);
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("", "empty"),
            ("id,name\n", "no rows"),
            ("id,name\n1,a\n2\n", "short row"),
            ("id,name\n1,a\n\n\"x\ny\",b\n3,c,d\n", "long row after a quoted line break"),
            ("id,id\n1,2\n", "same name twice"),
            ("id,\n1,2\n", "no name"),
            ("{{id}}\n1\n", "braces"),
        ];
        let mut said: String =
            cases.iter().map(|(text, what)| format!("{what}: {}\n", parse(text).unwrap_err())).collect();
        said += &format!(
            "not UTF-8: {}\n",
            parse_csv("csv", b"id,name\n1,a\n2,\xff\n", "users.csv").unwrap_err()
        );
        said += &format!("missing: {}\n", load_csv("csv", Path::new("no/such.csv")).unwrap_err());
        said += &format!("directory: {}\n", load_csv("csv", Path::new(".")).unwrap_err());
        insta::assert_snapshot!(said);
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let columns = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>();
        assert!(check_columns(&columns(MAX_CSV_COLUMNS)).is_ok());
        assert!(check_columns(&columns(MAX_CSV_COLUMNS + 1)).is_err());
        let rows = |n: usize| parse_rows("csv", format!("a\n{}", "1\n".repeat(n)).as_bytes(), "x.csv", 3);
        assert!(rows(3).is_ok());
        assert_eq!(rows(4), Err("x.csv: has more than 3 rows, the most that are held in memory".to_owned()));
    }

    #[test]
    fn names() {
        assert!(check_name("csv").is_ok() && check_name("my-data_2").is_ok());
        assert!(check_name("env").unwrap_err().to_string().contains("environment"));
        assert!(check_name("").is_err() && check_name("a.b").is_err() && check_name("a b").is_err());
    }
}
