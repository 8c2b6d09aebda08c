package plant

// ListBytes is how many bytes of names and tags a list has when it ends, if it has not ended before:
// what one request makes an engine read is bounded however large plants are.
const ListBytes = 256 << 10

// Size is how many bytes of text a plant has. As JSON it has no fewer.
func (p Plant) Size() int {
	if p.Tag == nil {
		return len(p.Name)
	}
	return len(p.Name) + len(*p.Tag)
}
