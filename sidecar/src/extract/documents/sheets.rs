//! Excel sheets, cell by cell: a row is a line, tabs between its cells.

use std::io::{Cursor, Write};

use calamine::{DataRef, Reader as _, Xlsx};

use super::{Fault, broken};

/// Empty cells between two others that are written; a hostile sheet has thousands of columns.
const MAX_GAP: u32 = 64;

/// Writes every sheet with its name in front. Formulas are told by their last value.
pub(super) fn read(file: Cursor<Vec<u8>>, out: &mut dyn Write) -> Result<(), Fault> {
    let mut book: Xlsx<_> = Xlsx::new(file).map_err(broken)?;
    for name in book.sheet_names() {
        writeln!(out, "Sheet {name}")?;
        // Charts and macro sheets have no cells.
        let Ok(mut cells) = book.worksheet_cells_reader(&name) else { continue };
        let (mut row, mut column) = (None, 0);
        while let Some(cell) = cells.next_cell().map_err(broken)? {
            let (cell_row, cell_column) = cell.get_position();
            let text = text_of(cell.get_value());
            if text.is_empty() {
                continue;
            }
            if row != Some(cell_row) {
                if row.is_some() {
                    writeln!(out)?;
                }
                (row, column) = (Some(cell_row), 0);
            }
            for _ in 0..cell_column.saturating_sub(column).min(MAX_GAP) {
                out.write_all(b"\t")?;
            }
            column = cell_column;
            out.write_all(text.as_bytes())?;
        }
        write!(out, "\n\n")?;
    }
    Ok(())
}

fn text_of(value: &DataRef<'_>) -> String {
    match value {
        DataRef::Empty => String::new(),
        DataRef::Int(number) => number.to_string(),
        DataRef::Float(number) => number.to_string(),
        DataRef::Bool(flag) => flag.to_string(),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => one_line(text),
        DataRef::SharedString(text) => one_line(text),
        DataRef::Error(error) => error.to_string(),
        DataRef::DateTime(time) if time.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
            match (hour, minute, second) {
                (0, 0, 0) => format!("{year:04}-{month:02}-{day:02}"),
                _ => format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"),
            }
        }
        DataRef::DateTime(duration) => duration.as_f64().to_string(),
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}
