//! `ferry kubectl …`, and this program under the name kubectl.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What kubectl is asked for; None where another command is.
pub fn arguments(all: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut all = all.peekable();
    let name = all.next()?;
    let by_name = Path::new(&name).file_name() == Some(OsStr::new("kubectl"));
    if !by_name {
        all.next_if(|first| first == "kubectl")?;
    }
    Some(all.map(|word| word.to_string_lossy().into_owned()).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_name_or_the_first_word_is_kubectl() {
        let of = |line: &[&str]| super::arguments(line.iter().map(Into::into));
        assert_eq!(of(&["/usr/bin/kubectl", "get", "pods"]), Some(vec!["get".to_owned(), "pods".to_owned()]));
        assert_eq!(
            of(&["ferry", "kubectl", "-n", "x", "get"]),
            Some(vec!["-n".to_owned(), "x".to_owned(), "get".to_owned()])
        );
        assert_eq!(of(&["ferry", "up", "kubectl"]), None);
        assert_eq!(of(&["ferry"]), None);
    }
}
