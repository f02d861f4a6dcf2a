//! Argument and result types, independent of the language.

use serde_json::Value;

/// A type. It may be wider than its schema, but not narrower.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Any value.
    Unknown,
    /// No value.
    Never,
    Null,
    Boolean,
    Integer,
    Number,
    String,
    /// One string, number or boolean.
    Literal(Value),
    Array(Box<Type>),
    /// The first items, and the type for further ones, if they are allowed.
    Tuple(Vec<Type>, Option<Box<Type>>),
    Object(Object),
    Union(Vec<Type>),
    Intersection(Vec<Type>),
    /// A definition, by its index in [`Types`].
    Named(usize),
}

/// An object with named fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    pub(super) others: Others,
}

impl Object {
    /// Returns `true` if fields without a name have a type.
    fn restricts_others(&self) -> bool {
        matches!(&self.others, Others::Allowed(kind) if **kind != Type::Unknown)
    }
}

/// Object fields that the schema does not name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Others {
    /// The schema does not mention them.
    #[default]
    Unmentioned,
    Forbidden,
    Allowed(Box<Type>),
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) kind: Type,
    pub(super) description: Option<String>,
    pub(super) default: Option<Value>,
}

/// A type that references share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    /// The name in the schema.
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) kind: Type,
}

/// A schema's type, with the definitions that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Types {
    pub(super) root: Type,
    pub(super) definitions: Vec<Definition>,
}

impl Type {
    /// Returns the types' union: flat, without duplicates.
    pub(super) fn union(types: impl IntoIterator<Item = Self>) -> Self {
        let mut distinct: Vec<Self> = Vec::new();
        for kind in types {
            match kind {
                Self::Unknown => return Self::Unknown,
                Self::Never => {}
                Self::Union(parts) => distinct.extend(parts),
                kind => distinct.push(kind),
            }
        }
        let mut kept: Vec<Self> = Vec::with_capacity(distinct.len());
        for kind in distinct {
            if !kept.contains(&kind) {
                kept.push(kind);
            }
        }
        match kept.len() {
            0 => Self::Never,
            1 => kept.remove(0),
            _ => Self::Union(kept),
        }
    }

    /// Returns the types' intersection: flat, without duplicates and unrestricted parts.
    pub(super) fn intersection(types: impl IntoIterator<Item = Self>) -> Self {
        let mut kept: Vec<Self> = Vec::new();
        let flat = types.into_iter().flat_map(|kind| match kind {
            Self::Intersection(parts) => parts,
            kind => vec![kind],
        });
        for kind in flat {
            if kind != Self::Unknown && !kept.contains(&kind) {
                kept.push(kind);
            }
        }
        // `type: object` next to alternatives. Strictly, `additionalProperties: false` next to them forbids their fields, too; no author
        // means that.
        if kept.iter().any(|kind| !kind.is_empty_object()) {
            kept.retain(|kind| !kind.is_empty_object());
        }
        match kept.len() {
            0 => Self::Unknown,
            1 => kept.remove(0),
            _ => Self::Intersection(kept),
        }
    }

    fn is_empty_object(&self) -> bool {
        matches!(self, Self::Object(object) if object.fields.is_empty() && !object.restricts_others())
    }

    /// Calls `see` with every definition that this type names, and whether it names it directly: not within a field or an item.
    fn for_each_name(&self, is_direct: bool, see: &mut impl FnMut(usize, bool)) {
        match self {
            Self::Named(at) => see(*at, is_direct),
            Self::Union(parts) | Self::Intersection(parts) => {
                parts.iter().for_each(|part| part.for_each_name(is_direct, see));
            }
            Self::Array(item) => item.for_each_name(false, see),
            Self::Tuple(items, rest) => {
                items.iter().chain(rest.as_deref()).for_each(|item| item.for_each_name(false, see));
            }
            Self::Object(object) => {
                object.fields.iter().for_each(|field| field.kind.for_each_name(false, see));
                if let Others::Allowed(others) = &object.others {
                    others.for_each_name(false, see);
                }
            }
            _ => {}
        }
    }

    /// Replaces definitions that this type names directly.
    fn without_direct(self, is_replaced: &impl Fn(usize) -> bool) -> Self {
        match self {
            Self::Named(at) if is_replaced(at) => Self::Unknown,
            Self::Union(parts) => Self::union(parts.into_iter().map(|part| part.without_direct(is_replaced))),
            Self::Intersection(parts) => {
                Self::intersection(parts.into_iter().map(|part| part.without_direct(is_replaced)))
            }
            kind => kind,
        }
    }
}

impl Types {
    /// Returns the arguments' object, if they are one.
    pub(super) fn argument_object(&self) -> Option<&Object> {
        match &self.root {
            Type::Object(object) => Some(object),
            Type::Named(at) => match &self.definitions[*at].kind {
                Type::Object(object) => Some(object),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns `true` if a type's values are all objects.
    pub(super) fn is_object(&self, kind: &Type) -> bool {
        self.is_known_object(kind, &mut vec![None; self.definitions.len()])
    }

    /// `known` has the outcome per definition, since many types may name the same one.
    fn is_known_object(&self, kind: &Type, known: &mut [Option<bool>]) -> bool {
        match kind {
            Type::Object(_) => true,
            Type::Union(parts) => parts.iter().all(|part| self.is_known_object(part, known)),
            Type::Intersection(parts) => parts.iter().any(|part| self.is_known_object(part, known)),
            // Definitions do not name each other in a circle here.
            Type::Named(at) => {
                let outcome = known[*at].unwrap_or_else(|| self.is_known_object(&self.definitions[*at].kind, known));
                known[*at] = Some(outcome);
                outcome
            }
            _ => false,
        }
    }

    /// Replaces a definition's references to itself that no field or item interrupts. No language has such types.
    pub(super) fn without_alias_cycles(mut self) -> Self {
        let mut edges: Vec<Vec<usize>> = (0..self.definitions.len()).map(|at| self.names(at, true)).collect();
        for from in 0..edges.len() {
            let reaching = reaching(&edges, from);
            if edges[from].iter().any(|to| reaching[*to]) {
                let kind = std::mem::replace(&mut self.definitions[from].kind, Type::Unknown);
                self.definitions[from].kind = kind.without_direct(&|at| reaching[at]);
                edges[from].retain(|to| !reaching[*to]);
            }
        }
        self
    }

    /// Returns for each definition whether it contains itself.
    pub(super) fn recursive(&self) -> Vec<bool> {
        let edges: Vec<Vec<usize>> = (0..self.definitions.len()).map(|at| self.names(at, false)).collect();
        let is_recursive = |at: usize| {
            let reaching = reaching(&edges, at);
            edges[at].iter().any(|to| reaching[*to])
        };
        (0..edges.len()).map(is_recursive).collect()
    }

    /// Returns the definitions that a definition names, or names directly.
    fn names(&self, at: usize, only_direct: bool) -> Vec<usize> {
        let mut names = Vec::new();
        self.definitions[at].kind.for_each_name(true, &mut |name, is_direct| {
            if is_direct || !only_direct {
                names.push(name);
            }
        });
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Returns for each node whether `to` can be reached from it, or is it.
fn reaching(edges: &[Vec<usize>], to: usize) -> Vec<bool> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, targets) in edges.iter().enumerate() {
        targets.iter().for_each(|target| before[*target].push(from));
    }
    let (mut reaching, mut open) = (vec![false; edges.len()], vec![to]);
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reaching[at], true) {
            open.extend(&before[at]);
        }
    }
    reaching
}
