//! `#[derive(Tree)]` for Pullback: nested structs and enums of tensors (parameters, optimiser
//! states, batches) become trees whose leaves can be visited by name and replaced.
//!
//! Use it through the `pullback` crate, which re-exports it together with the trait. For
//! ```text
//! #[derive(Tree)]
//! struct Linear {
//!     weight: Tensor,
//!     bias: Option<Tensor>,
//!     #[tree(skip)]
//!     name: Label,
//! }
//! ```
//! it writes, with hygienic names for the locals:
//! ```text
//! impl ::pullback::Tree for Linear {
//!     fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
//!         Path::kind(path, "Linear");
//!         match self {
//!             Self { weight: field0, bias: field1, name: field2 } => {
//!                 Path::scope(path, "weight", |path| <Tensor as Tree>::visit(field0, path, &mut *f));
//!                 Path::scope(path, "bias", |path| <Option<Tensor> as Tree>::visit(field1, path, &mut *f));
//!             }
//!         }
//!     }
//!     fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
//!         match self {
//!             Self { weight: field0, bias: field1, name: field2 } => Self {
//!                 weight: <Tensor as Tree>::map(field0, &mut *f),
//!                 bias: <Option<Tensor> as Tree>::map(field1, &mut *f),
//!                 name: <Label as Clone>::clone(field2),
//!             },
//!         }
//!     }
//! }
//! ```
//! A tuple struct is `Self { 0: field0, .. }`, a unit struct is `Self {}` and a variant is
//! `Self::Variant { .. }`, so the same code is generated for all of them.
#![forbid(unsafe_code)]

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Generics, Member, Path, Result, Type};

/// Implements `pullback::Tree` for a struct or an enum whose fields implement it.
///
/// Leaves come in declaration order. A field adds its name to the path, or its index in a tuple
/// struct; a variant adds nothing. `map` keeps the variant.
///
/// - `#[tree(skip)]` on a field says that it carries no tensor: it is not visited, and `map` clones
///   it. Its type needs `Clone` instead of `Tree`.
/// - `#[tree(buffer)]` on a field says that its tensors are state that is not trained: running
///   statistics, counters. They are visited as others are, and `Path::is_buffer` says so.
/// - `#[tree(crate = some::path)]` on the type names the `pullback` crate where it goes by another
///   name.
///
/// A type parameter used by a field gets the bound `Tree` (`Clone` for a skipped field).
/// An associated type such as `T::State` gets none: state it in a `where` clause.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input.into()).into()
}

/// The implementation for the type in `input`, or a `compile_error!` at what is wrong with it.
fn derive(input: TokenStream) -> TokenStream {
    syn::parse2(input).and_then(expand).unwrap_or_else(Error::into_compile_error)
}

fn expand(input: DeriveInput) -> Result<TokenStream> {
    let root = crate_path(&input.attrs)?;
    let shapes = shapes(&input)?;
    let generics = bounded(input.generics, &shapes, &root);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    let kind = name.unraw().to_string();
    let (path, f) = (local("path"), local("f"));

    let visits = shapes.iter().map(|shape| shape.visit(&root, &path, &f));
    let maps = shapes.iter().map(|shape| shape.map(&root, &f));
    // `self` is a reference, and a reference is never known to be uninhabited: look behind it.
    let subject = if shapes.is_empty() { quote!(*self) } else { quote!(self) };

    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables, deprecated)]
        impl #impl_generics #root::Tree for #name #type_generics #where_clause {
            fn visit(
                &self,
                #path: &mut #root::Path,
                #f: &mut dyn ::core::ops::FnMut(&#root::Path, &#root::Tensor),
            ) {
                #root::Path::kind(#path, #kind);
                match #subject { #(#visits)* }
            }

            fn map(
                &self,
                #f: &mut dyn ::core::ops::FnMut(&#root::Tensor) -> #root::Tensor,
            ) -> Self {
                match #subject { #(#maps)* }
            }
        }
    })
}

/// A struct, or one variant of an enum: how to name it, and its fields.
struct Variant {
    /// `Self` or `Self::Variant`: a pattern and a constructor, followed by braces.
    head: TokenStream,
    /// The variant of an enum.
    variant: Option<Ident>,
    slots: Vec<FieldBinding>,
}

/// A field: `member: binding` in the pattern.
struct FieldBinding {
    member: Member,
    binding: Ident,
    ty: Type,
    skip: bool,
    buffer: bool,
}

impl Variant {
    fn new(head: TokenStream, variant: Option<&Ident>, fields: &Fields) -> Result<Variant> {
        let slot = |(i, (member, field)): (usize, (Member, &syn::Field))| {
            let (skip, buffer) = keys_of(&field.attrs)?;
            let binding = local(&format!("field{i}"));
            Ok(FieldBinding { member, binding, ty: field.ty.clone(), skip, buffer })
        };
        let slots = fields.members().zip(fields).enumerate().map(slot).collect::<Result<_>>()?;
        Ok(Variant { head, variant: variant.cloned(), slots })
    }

    fn pattern(&self) -> TokenStream {
        let head = &self.head;
        let fields =
            self.slots.iter().map(|FieldBinding { member, binding, .. }| quote!(#member: #binding));
        quote!(#head { #(#fields),* })
    }

    fn visit(&self, root: &Path, path: &Ident, f: &Ident) -> TokenStream {
        let pattern = self.pattern();
        let calls = self.slots.iter().filter(|slot| !slot.skip).map(|slot| {
            let FieldBinding { binding, ty, buffer, .. } = slot;
            let name = slot.name();
            let scope = if *buffer { quote!(buffer) } else { quote!(scope) };
            // The span of the type: "`Foo: Tree` is not satisfied" then points at the field.
            quote_spanned! {ty.span()=>
                #root::Path::#scope(#path, #name, |#path| {
                    <#ty as #root::Tree>::visit(#binding, #path, &mut *#f)
                });
            }
        });
        // Which variant it is belongs to the structure.
        let variant = self.variant.iter().map(|name| {
            let name = name.to_string();
            quote!(#root::Path::note(#path, &#name);)
        });
        quote!(#pattern => { #(#variant)* #(#calls)* })
    }

    fn map(&self, root: &Path, f: &Ident) -> TokenStream {
        let (pattern, head) = (self.pattern(), &self.head);
        let fields = self.slots.iter().map(|FieldBinding { member, binding, ty, skip, .. }| {
            let value = if *skip {
                quote_spanned!(ty.span()=> <#ty as ::core::clone::Clone>::clone(#binding))
            } else {
                quote_spanned!(ty.span()=> <#ty as #root::Tree>::map(#binding, &mut *#f))
            };
            quote!(#member: #value)
        });
        quote!(#pattern => #head { #(#fields),* },)
    }
}

impl FieldBinding {
    /// The path segment: `weight`, `0`, and `type` for `r#type`.
    fn name(&self) -> String {
        match &self.member {
            Member::Named(ident) => ident.unraw().to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        }
    }
}

fn shapes(input: &DeriveInput) -> Result<Vec<Variant>> {
    match &input.data {
        Data::Struct(data) => Ok(vec![Variant::new(quote!(Self), None, &data.fields)?]),
        Data::Enum(data) => {
            let shape = |variant: &syn::Variant| {
                attributes(&variant.attrs, "a variant takes none", |_| Ok(false))?;
                let name = &variant.ident;
                Variant::new(quote!(Self::#name), Some(name), &variant.fields)
            };
            data.variants.iter().map(shape).collect()
        }
        Data::Union(data) => Err(Error::new(
            data.union_token.span,
            "`Tree` cannot be derived for a union: nothing says which of its fields is there; \
             use an enum",
        )),
    }
}

/// `generics` with the bounds that the fields need.
fn bounded(mut generics: Generics, shapes: &[Variant], root: &Path) -> Generics {
    let slots = || shapes.iter().flat_map(|shape| &shape.slots);
    for param in generics.type_params_mut() {
        let used = |skip: bool| {
            slots()
                .any(|slot| slot.skip == skip && mentions(slot.ty.to_token_stream(), &param.ident))
        };
        let (visited, cloned) = (used(false), used(true));
        if visited {
            param.bounds.push(syn::parse_quote!(#root::Tree));
        }
        if cloned {
            param.bounds.push(syn::parse_quote!(::core::clone::Clone));
        }
    }
    generics
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The path that `#[tree(crate = path)]` gives, or `::pullback`.
fn crate_path(attrs: &[Attribute]) -> Result<Path> {
    let mut root = syn::parse_quote!(::pullback);
    attributes(attrs, "a type takes `crate = path`; `skip` goes on a field", |meta| {
        let known = meta.path.is_ident("crate");
        if known {
            root = meta.value()?.call(Path::parse_mod_style)?;
        }
        Ok(known)
    })?;
    Ok(root)
}

/// Whether a field is skipped, and whether it is a buffer.
fn keys_of(attrs: &[Attribute]) -> Result<(bool, bool)> {
    let (mut skip, mut buffer) = (false, false);
    attributes(attrs, "a field takes `skip` or `buffer`", |meta| {
        skip |= meta.path.is_ident("skip");
        buffer |= meta.path.is_ident("buffer");
        if skip && buffer {
            return Err(meta.error("a field that is skipped has no tensors, so it is no `buffer`"));
        }
        Ok(meta.path.is_ident("skip") || meta.path.is_ident("buffer"))
    })?;
    Ok((skip, buffer))
}

/// Reads the keys of every `#[tree(..)]`. `read` says whether it knew the key; if it did not, the
/// error at the key names it and says `what_fits`.
fn attributes(
    attrs: &[Attribute],
    what_fits: &str,
    mut read: impl FnMut(&syn::meta::ParseNestedMeta) -> Result<bool>,
) -> Result<()> {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("tree")) {
        attr.parse_nested_meta(|meta| {
            if read(&meta)? {
                return Ok(());
            }
            let key = meta.path.to_token_stream();
            Err(meta.error(format_args!("unknown key `{key}` in `#[tree(..)]`: {what_fits}")))
        })?;
    }
    Ok(())
}

/// A name for a local of the generated code that cannot collide with the user's names.
fn local(name: &str) -> Ident {
    format_ident!("{name}", span = Span::mixed_site())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text without its white space, so that the tests do not depend on how tokens are joined.
    fn squeeze(text: impl ToString) -> String {
        text.to_string().split_whitespace().collect()
    }

    fn text(input: TokenStream) -> String {
        squeeze(derive(input))
    }

    #[track_caller]
    fn assert_has(text: &str, part: &str) {
        assert!(text.contains(&squeeze(part)), "missing\n  {part}\nin\n  {text}");
    }

    /// What the `compile_error!` says.
    fn error(input: TokenStream) -> String {
        match syn::parse2(input).and_then(expand) {
            Ok(tokens) => panic!("no error, but {tokens}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_named_struct_visits_and_maps_in_order() {
        let out = derive(quote! { struct Linear { weight: Tensor, bias: Option<Tensor> } });
        let expected = quote! {
            #[automatically_derived]
            #[allow(unused_variables, deprecated)]
            impl ::pullback::Tree for Linear {
                fn visit(
                    &self,
                    path: &mut ::pullback::Path,
                    f: &mut dyn ::core::ops::FnMut(&::pullback::Path, &::pullback::Tensor),
                ) {
                    ::pullback::Path::kind(path, "Linear");
                    match self {
                        Self { weight: field0, bias: field1 } => {
                            ::pullback::Path::scope(path, "weight", |path| {
                                <Tensor as ::pullback::Tree>::visit(field0, path, &mut *f)
                            });
                            ::pullback::Path::scope(path, "bias", |path| {
                                <Option<Tensor> as ::pullback::Tree>::visit(field1, path, &mut *f)
                            });
                        }
                    }
                }

                fn map(
                    &self,
                    f: &mut dyn ::core::ops::FnMut(&::pullback::Tensor) -> ::pullback::Tensor,
                ) -> Self {
                    match self {
                        Self { weight: field0, bias: field1 } => Self {
                            weight: <Tensor as ::pullback::Tree>::map(field0, &mut *f),
                            bias: <Option<Tensor> as ::pullback::Tree>::map(field1, &mut *f)
                        },
                    }
                }
            }
        };
        assert_eq!(squeeze(out), squeeze(expected));
    }

    #[test]
    fn tuple_fields_are_named_by_index() {
        let out = text(quote! { struct Pair(Tensor, Tensor); });
        assert_has(&out, "Self { 0: field0, 1: field1 } =>");
        assert_has(&out, r#"::pullback::Path::scope(path, "0","#);
        assert_has(&out, r#"::pullback::Path::scope(path, "1","#);
        assert_has(&out, "=> Self { 0: <Tensor as ::pullback::Tree>::map(field0, &mut *f),");
    }

    #[test]
    fn a_unit_struct_has_no_leaves() {
        let out = text(quote! { struct Relu; });
        assert_has(&out, "match self { Self {} => {} }");
        assert_has(&out, "match self { Self {} => Self {}, }");
    }

    #[test]
    fn an_enum_keeps_its_variant() {
        let out = text(quote! { enum Layer { Linear(Linear), Scale { by: Tensor }, Relu } });
        assert_has(&out, "Self::Linear { 0: field0 } => Self::Linear { 0:");
        assert_has(&out, "Self::Scale { by: field0 } => Self::Scale { by:");
        assert_has(&out, "Self::Relu {} => Self::Relu {},");
        assert_has(&out, r#"Self::Relu {} => { ::pullback::Path::note(path, &"Relu"); }"#);
    }

    #[test]
    fn an_empty_enum_matches_behind_the_reference() {
        assert_has(&text(quote! { enum Never {} }), "match *self {}");
    }

    #[test]
    fn a_skipped_field_is_cloned_and_not_visited() {
        let out = text(quote! { struct Named { #[tree(skip)] label: Label, x: Tensor } });
        assert_has(&out, "label: <Label as ::core::clone::Clone>::clone(field0)");
        assert!(!out.contains("\"label\""), "{out}");
    }

    #[test]
    fn a_buffer_is_visited_as_one() {
        let out = text(quote! { struct Norm { weight: Tensor, #[tree(buffer)] mean: Tensor } });
        assert_has(&out, r#"::pullback::Path::scope(path, "weight","#);
        assert_has(&out, r#"::pullback::Path::buffer(path, "mean","#);
        assert_has(&out, "mean: <Tensor as ::pullback::Tree>::map(field1, &mut *f)");
    }

    #[test]
    fn a_raw_name_loses_its_prefix_in_the_path() {
        let out = text(quote! { struct Raw { r#type: Tensor } });
        assert_has(&out, r#"::pullback::Path::scope(path, "type","#);
        assert_has(&out, "Self { r#type: field0 }");
    }

    #[test]
    fn type_parameters_are_bounded_by_their_use() {
        let out = text(quote! {
            struct Stack<'a, T, U: Debug, V = f64, const N: usize>
            where T: Send { layers: [Box<T>; N], #[tree(skip)] note: &'a U, #[tree(skip)] also: (T,) }
        });
        assert_has(&out, "impl<'a, T: ::pullback::Tree + ::core::clone::Clone,");
        assert_has(&out, "U: Debug + ::core::clone::Clone, V, const N: usize>");
        assert_has(&out, "::pullback::Tree for Stack<'a, T, U, V, N> where T: Send {");
    }

    #[test]
    fn the_crate_can_go_by_another_name() {
        let out = text(quote! { #[tree(crate = crate::ad)] struct Leaf(Tensor); });
        assert_has(&out, "impl crate::ad::Tree for Leaf");
        assert_has(&out, r#"crate::ad::Path::scope(path, "0","#);
        assert!(!out.contains("::pullback"), "{out}");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let message = error(quote! { union Bits { a: u32, b: f32 } });
        assert!(message.contains("cannot be derived for a union"), "{message}");
        let message = error(quote! { struct S { #[tree(skpi)] x: f64 } });
        assert_eq!(
            message,
            "unknown key `skpi` in `#[tree(..)]`: a field takes `skip` or `buffer`"
        );
        let message = error(quote! { struct S { #[tree(skip, buffer)] x: f64 } });
        assert!(message.contains("it is no `buffer`"), "{message}");
        let message = error(quote! { #[tree(skip)] struct S; });
        assert!(message.ends_with("`skip` goes on a field"), "{message}");
        let message = error(quote! { enum E { #[tree(skip)] A(f64) } });
        assert!(message.ends_with("a variant takes none"), "{message}");
        let message = error(quote! { struct S { #[tree] x: f64 } });
        assert!(message.contains("#[tree(...)]"), "{message}");
    }

    #[test]
    fn an_error_becomes_a_compile_error() {
        assert!(text(quote! { union U { a: u32 } }).contains("compile_error!"));
    }
}
