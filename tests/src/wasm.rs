//! Reads what a wasm module asks of its host and offers to it: enough of the binary format for the import guard.
//!
//! INVARIANT: a file that is not a whole wasm module is an error, never a module without imports.

/// A module's surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `module.name` of every imported function, in order.
    pub imports: Vec<String>,
    /// Name of every export, in order.
    pub exports: Vec<String>,
}

const MAGIC: &[u8] = b"\0asm\x01\0\0\0";
const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const FUNCTION: u8 = 0;

impl Module {
    /// Reads the import and export sections; `None` for anything unexpected.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes.strip_prefix(MAGIC)?);
        let mut module = Self { imports: Vec::new(), exports: Vec::new() };
        while !rest.0.is_empty() {
            let id = rest.byte()?;
            let size = rest.size()?;
            let mut section = Reader(rest.take(size)?);
            match id {
                IMPORTS => module.imports = section.imports()?,
                EXPORTS => module.exports = section.exports()?,
                _ => {}
            }
        }
        Some(module)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn imports(&mut self) -> Option<Vec<String>> {
        let count = self.size()?;
        let mut imports = Vec::new();
        for _ in 0..count {
            let name = format!("{}.{}", self.name()?, self.name()?);
            // A table, memory or global would need a host that provides one; ours imports functions alone.
            if self.byte()? != FUNCTION {
                return None;
            }
            self.size()?;
            imports.push(name);
        }
        Some(imports)
    }

    fn exports(&mut self) -> Option<Vec<String>> {
        let count = self.size()?;
        let mut exports = Vec::new();
        for _ in 0..count {
            exports.push(self.name()?.to_owned());
            self.byte()?;
            self.size()?;
        }
        Some(exports)
    }

    fn name(&mut self) -> Option<&'a str> {
        let size = self.size()?;
        std::str::from_utf8(self.take(size)?).ok()
    }

    /// An unsigned LEB128 number of at most 32 bits.
    fn size(&mut self) -> Option<usize> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok();
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::Module;

    /// `(module (import "env" "f" (func)) (memory (export "m") 1))`, by hand.
    const SMALL: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x02\x09\x01\x03env\x01f\0\0\
        \x05\x03\x01\0\x01\
        \x07\x05\x01\x01m\x02\0";

    #[test]
    fn reads_imports_and_exports() {
        let module = Module::parse(SMALL).unwrap();
        assert_eq!(module.imports, ["env.f"]);
        assert_eq!(module.exports, ["m"]);
    }

    #[test]
    fn half_a_module_is_none() {
        let whole_sections = [8, 14, 25, 30, SMALL.len()];
        for end in 0..=SMALL.len() {
            let parsed = Module::parse(&SMALL[..end]);
            assert_eq!(parsed.is_some(), whole_sections.contains(&end), "{end} bytes");
        }
    }
}
