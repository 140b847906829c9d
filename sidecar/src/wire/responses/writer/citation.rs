//! Citations: where the words of an answer speak of files that its code wrote.
//!
//! INVARIANT: a file is cited by the last words of an answer at the latest, unless words before did so; of two files of
//! one name the newer one is meant.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Value, json};

use crate::ids;
use crate::wire::event::CodeFiles;

/// How models begin the address of a file in their working directory, after OpenAI's own service.
const ADDRESS: &str = "sandbox:";
/// What they write between that and the file's place, the longest first.
const DIRECTORIES: [&str; 5] = ["/mnt/data/", "/workspace/", "./", "/", ""];

/// The files of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Citations(Vec<Cited>);

#[derive(Debug)]
struct Cited {
    id: String,
    filename: String,
    /// Its place in the workspace, as it is and as it stands in an address.
    places: [String; 2],
    is_done: bool,
}

impl Citations {
    /// Whether there is nothing to cite.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Code wrote more.
    pub(super) fn add(&mut self, files: &CodeFiles) {
        for (path, stored) in files.stored() {
            self.0.retain(|known| known.places[0] != path);
            self.0.push(Cited {
                id: stored.id.clone(),
                filename: stored.filename.clone(),
                places: [path.to_owned(), in_address(path)],
                is_done: false,
            });
        }
    }

    /// The annotations of a text. `last`: no code follows it, so it cites what is left, too.
    pub(super) fn of(&mut self, text: &str, container: &str, last: bool) -> Vec<Value> {
        let mut found: Vec<(Range<usize>, Value)> = Vec::new();
        for file in &mut self.0 {
            let place = file.place_in(text);
            if place.is_none() && (file.is_done || !last) {
                continue;
            }
            file.is_done = true;
            let range = place.unwrap_or_default();
            let annotation = json!({
                "type": "container_file_citation", "container_id": container, "file_id": ids::in_container(&file.id),
                "filename": file.filename, "start_index": characters(text, range.start),
                "end_index": characters(text, range.end),
            });
            found.push((range, annotation));
        }
        found.sort_by_key(|(range, _)| range.start);
        found.into_iter().map(|(_, annotation)| annotation).collect()
    }
}

impl Cited {
    /// Where a text has the file's address, or its id.
    fn place_in(&self, text: &str) -> Option<Range<usize>> {
        let address = || {
            text.match_indices(ADDRESS).find_map(|(start, _)| {
                let rest = text.get(start + ADDRESS.len()..)?;
                let after = |place: &String| {
                    let after = |directory: &&str| rest.strip_prefix(*directory)?.strip_prefix(place.as_str());
                    DIRECTORIES.iter().filter_map(after).find(|after| ends_name(after))
                };
                let after = self.places.iter().find_map(after)?;
                Some(start..text.len() - after.len())
            })
        };
        address().or_else(|| text.find(&self.id).map(|start| start..start + self.id.len()))
    }
}

/// Whether a name ends in front of this: another letter, or an extension, would make it another one.
fn ends_name(rest: &str) -> bool {
    let mut chars = rest.chars();
    let is_of_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '/' | '%');
    match chars.next() {
        Some('.') => !chars.next().is_some_and(is_of_name),
        next => !next.is_some_and(is_of_name),
    }
}

/// A path with everything escaped that an address may not hold as it is.
fn in_address(path: &str) -> String {
    let mut address = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            address.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            write!(address, "%{byte:02X}").ok();
        }
    }
    address
}

/// Clients count characters, not bytes.
fn characters(text: &str, end: usize) -> usize {
    text.get(..end).unwrap_or(text).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::event::{CodeFile, StoredFile};

    fn files(paths: &[&str]) -> CodeFiles {
        let file = |(number, path): (usize, &&str)| CodeFile {
            path: (*path).to_owned(),
            kept: Ok(StoredFile {
                id: format!("file-otr{number:032x}"),
                filename: path.rsplit('/').next().unwrap().to_owned(),
                mime_type: "text/csv".to_owned(),
                size_bytes: 1,
                image: None,
            }),
        };
        CodeFiles { files: paths.iter().enumerate().map(file).collect(), unnamed: 0 }
    }

    /// What a text cites, each as the words that the citation stands for.
    fn cited(paths: &[&str], text: &str) -> Vec<String> {
        let mut citations = Citations::default();
        citations.add(&files(paths));
        let of = |annotation: Value| {
            let index = |name: &str| usize::try_from(annotation[name].as_u64().unwrap()).unwrap();
            let (start, end) = (index("start_index"), index("end_index"));
            text.chars().skip(start).take(end - start).collect()
        };
        citations.of(text, "otari_cntr_1", false).into_iter().map(of).collect()
    }

    #[test]
    fn an_address_is_cited_whole_whatever_directory_the_model_believes_in() {
        for text in [
            "é [chart](sandbox:/mnt/data/out/chart.png) it is",
            "sandbox:/workspace/out/chart.png.",
            "sandbox:out/chart.png",
            "<sandbox:./out/chart.png>",
            "file-otr00000000000000000000000000000000 is it",
        ] {
            let found = cited(&["out/chart.png"], text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(text.contains(&found[0]) && (found[0].ends_with("chart.png") || found[0].starts_with("file-otr")));
        }
        assert_eq!(
            cited(&["a b é.csv"], "[x](sandbox:/mnt/data/a%20b%20%C3%A9.csv)"),
            ["sandbox:/mnt/data/a%20b%20%C3%A9.csv"]
        );
        assert_eq!(cited(&["a b é.csv"], "[x](<sandbox:/mnt/data/a b é.csv>)"), ["sandbox:/mnt/data/a b é.csv"]);
    }

    #[test]
    fn a_name_that_another_begins_with_is_not_the_other() {
        let text = "sandbox:/mnt/data/data.csv.gz and sandbox:/mnt/data/data.csv. And sandbox:data.csvx sandbox:a/data";
        assert_eq!(cited(&["data.csv"], text), ["sandbox:/mnt/data/data.csv"]);
        assert_eq!(cited(&["data"], text), [] as [&str; 0]);
        assert_eq!(cited(&["data.csv.gz", "data.csv"], text).len(), 2);
        assert_eq!(cited(&["chart.png"], "the chart.png is done"), [] as [&str; 0]);
    }

    #[test]
    fn the_last_words_cite_what_none_before_did() {
        let mut citations = Citations::default();
        citations.add(&files(&["a", "b", "c"]));
        let names = |annotations: Vec<Value>| -> Vec<(String, u64)> {
            let name = |one: Value| (one["filename"].as_str().unwrap().to_owned(), one["end_index"].as_u64().unwrap());
            annotations.into_iter().map(name).collect()
        };
        let mut of = |text: &str, last: bool| names(citations.of(text, "otari_cntr_1", last));
        assert_eq!(of("sandbox:b and more", false), [("b".to_owned(), 9)]);
        assert_eq!(of("see sandbox:c", true), [("a".to_owned(), 0), ("c".to_owned(), 13)]);
        assert_eq!(of("done", true), []);
        // Written over: the new one is another file.
        let mut newer = files(&["a"]);
        newer.files[0].kept.as_mut().unwrap().id = format!("file-otr{:032x}", 9);
        citations.add(&newer);
        let last = citations.of("done", "otari_cntr_1", true);
        assert_eq!(last.len(), 1);
        assert_eq!(last[0]["file_id"], format!("cfile_otr{:032x}", 9));
    }
}
