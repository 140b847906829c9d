//! HTML, as a person would read it.

use std::io::Write;

use html2text::config;

use super::{Fault, broken};

/// Characters of a line.
const WIDTH: usize = 120;

/// Writes the text without tags, scripts and styles; where links lead stands at its end.
pub(super) fn read(bytes: &[u8], out: &mut dyn Write) -> Result<(), Fault> {
    let config = config::plain_no_decorate().allow_width_overflow().no_table_borders().link_footnotes(true);
    let text = config.string_from_read(bytes, WIDTH).map_err(broken)?;
    Ok(out.write_all(text.as_bytes())?)
}
