package postgres

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed is the list of all statements on plants. Each must run on a table that is distributed over servers
// by create_distributed_table('plants', 'id'): the reviewer of a new one checks that.
var allowed = map[string]string{
	"insertPlants": "INSERT INTO plants (store, id, name, tag) " +
		"SELECT store, id, name, tag " +
		"FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS sent (store, id, name, tag)",
	"insertAbsent": "INSERT INTO plants (store, id, name, tag) " +
		"SELECT store, id, name, tag " +
		"FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS sent (store, id, name, tag) " +
		"ON CONFLICT DO NOTHING RETURNING store, id",
	"insertInto":   "INSERT INTO plants (store, id, name, tag)",
	"selectPlants": "SELECT id, name, tag FROM plants WHERE store = $1 AND id = ANY($2::bigint[])",
	"getPlant":     "SELECT name, tag FROM plants WHERE store = $1 AND id = $2",
	"listPlants": "SELECT id, CASE WHEN octet_length(name) + coalesce(octet_length(tag), 0) <= 65536 THEN name END, " +
		"CASE WHEN octet_length(tag) <= 65536 THEN tag END " +
		"FROM plants WHERE store = $1 AND id >= $2 AND id <= $4 ORDER BY id LIMIT $3",
	"firstStore":   "SELECT store FROM plants ORDER BY store LIMIT 1",
	"nextStore":    "SELECT store FROM plants WHERE store > $1 ORDER BY store LIMIT 1",
	"countPlants":  "SELECT count(*) FROM plants WHERE store = $1",
	"replacePlant": "UPDATE plants SET name = $3, tag = $4 WHERE store = $1 AND id = $2",
	"replaceIfEqual": "UPDATE plants SET name = $3, tag = $4 WHERE store = $1 AND id = $2 " +
		"AND name = $5 AND tag IS NOT DISTINCT FROM $6",
	"rewritePlant":  "UPDATE plants SET name = name WHERE store = $1 AND id = $2",
	"lockPlant":     "SELECT 1 FROM plants WHERE store = $1 AND id = $2 FOR UPDATE",
	"removePlant":   "DELETE FROM plants WHERE store = $1 AND id = $2",
	"removeIfEqual": "DELETE FROM plants WHERE store = $1 AND id = $2 AND name = $3 AND tag IS NOT DISTINCT FROM $4",

	// Of the catalog only.
	"selectDoctor": "SELECT clock_timestamp(), coalesce(string_agg(privilege || ' ON ' || name, ', '), '') " +
		"FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'), " +
		"('tokens', 'SELECT'), ('tokens', 'INSERT'), ('tokens', 'UPDATE')) AS needed (name, privilege) " +
		"WHERE NOT has_table_privilege(to_regclass(name), privilege)",
	"withTables": normal(withTables), "withShards": normal(withShards),

	// Statements of ReadStatus.
	"countEveryPlant": "SELECT count(*) FROM plants",
	"selectSize": "SELECT pg_total_relation_size('plants'), reltuples::bigint FROM pg_class " +
		"WHERE oid = 'plants'::regclass",
	"nodeShards": "SELECT concat_ws(' ', count(*), coalesce(sum(pg_total_relation_size(shard)), 0), " +
		"coalesce(sum(reltuples::bigint), 0), coalesce(min(reltuples::bigint), 0)) " +
		"FROM ( SELECT to_regclass(shard_name(logicalrelid, shardid)) AS shard " +
		"FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) " +
		"WHERE logicalrelid = to_regclass('plants') AND groupid = (SELECT groupid FROM pg_dist_local_group) ) AS placed " +
		"LEFT JOIN pg_class ON oid = shard",
	// Statements of Distribute, on the coordinator.
	"lockAll": "LOCK TABLE plants, tokens, plantstore_schema IN ACCESS EXCLUSIVE MODE",
	"countAll": "SELECT 'plants', count(*) FROM plants UNION ALL SELECT 'tokens', count(*) FROM tokens " +
		"UNION ALL SELECT 'plantstore_schema', count(*) FROM plantstore_schema",
	"selectDistribution": "SELECT name, coalesce(partmethod::text || repmodel::text, ''), " +
		"coalesce(column_to_column_name(logicalrelid, partkey), ''), " +
		"(SELECT count(*) FROM pg_dist_shard s WHERE s.logicalrelid = p.logicalrelid) " +
		"FROM unnest(ARRAY['plants', 'tokens', 'plantstore_schema']) AS name " +
		"LEFT JOIN pg_dist_partition p ON logicalrelid = to_regclass(name)",
	"createDistributed": "SELECT create_distributed_table('plants', $1::text, shard_count => $2, colocate_with => 'none')",
	"undistribute":      "SELECT undistribute_table('plants')",
	"alterDistributed": "SELECT alter_distributed_table('plants', distribution_column => $1, shard_count => $2, " +
		"colocate_with => 'none')",

	// Of the catalog of Citus.
	"selectShards": "SELECT column_to_column_name(t.logicalrelid, t.partkey) = 'store', s.shardid, " +
		"s.shardminvalue::int, min(p.groupid) FROM pg_dist_partition t " +
		"JOIN pg_dist_shard s USING (logicalrelid) JOIN pg_dist_placement p USING (shardid) " +
		"WHERE t.logicalrelid = to_regclass('plants') AND t.partmethod = 'h' GROUP BY 1, 2, 3 ORDER BY 3",
	"shardsOf": "SELECT CASE WHEN $3 THEN get_shard_id_for_distribution_column('plants', store) " +
		"ELSE get_shard_id_for_distribution_column('plants', id) END " +
		"FROM unnest($1::bigint[], $2::text[]) sample (id, store)",

	"schema/0001_plants_and_tokens.sql": `CREATE TABLE plants ( store text COLLATE "C" NOT NULL, id bigint NOT NULL, ` +
		`name text COLLATE "C" NOT NULL, tag text COLLATE "C", PRIMARY KEY (store, id) )`,
}

var (
	aboutPlants = regexp.MustCompile(
		`(?is)\b(select|insert|update|delete|merge|create|alter|drop|truncate|lock|copy)\b.*\bplants\b`)
	spaces   = regexp.MustCompile(`\s+`)
	comments = regexp.MustCompile(`--[^\n]*`)
)

func normal(sql string) string { return strings.TrimSpace(spaces.ReplaceAllString(sql, " ")) }

func TestStatements(t *testing.T) {
	found := map[string]string{}
	statementsInGo(t, found)
	statementsInSchema(t, found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name] != allowed[name] {
			t.Errorf("%s = %s\nis not on the list: %s", name, found[name], allowed[name])
		}
	}
	for name := range allowed {
		if found[name] == "" {
			t.Errorf("%s is on the list and not in the package", name)
		}
	}
}

// parsePackage returns the files of the package and its constants by name.
func parsePackage(t *testing.T, positions *token.FileSet) (parsed []*ast.File, constants map[string]ast.Expr) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants = map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(positions, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, tree)
		ast.Inspect(tree, func(n ast.Node) bool {
			if decl, ok := n.(*ast.GenDecl); ok && decl.Tok == token.CONST {
				for _, spec := range decl.Specs {
					for i, value := range spec.(*ast.ValueSpec).Values {
						constants[spec.(*ast.ValueSpec).Names[i].Name] = value
					}
				}
			}
			return true
		})
	}
	return parsed, constants
}

// statementsInGo adds the constants of the package that are statements on plants.
// A statement on plants that is not a constant is an error.
func statementsInGo(t *testing.T, found map[string]string) {
	t.Helper()
	positions := token.NewFileSet()
	parsed, constants := parsePackage(t, positions)
	listed := map[token.Pos]bool{} // literals that are part of a constant
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				listed[e.Pos()] = true
				value, _ := strconv.Unquote(e.Value)
				return value
			}
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		case *ast.Ident:
			return text(constants[e.Name])
		}
		return ""
	}
	for name, value := range constants {
		if sql := text(value); aboutPlants.MatchString(sql) {
			found[name] = normal(sql)
		}
	}
	for _, tree := range parsed {
		ast.Inspect(tree, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if ok && literal.Kind == token.STRING && !listed[literal.Pos()] && aboutPlants.MatchString(literal.Value) {
				t.Errorf("%s: a statement on plants that is not a constant: %s",
					positions.Position(literal.Pos()), literal.Value)
			}
			return true
		})
	}
}

func statementsInSchema(t *testing.T, found map[string]string) {
	files, err := filepath.Glob("schema/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("schema/*.sql = %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(comments.ReplaceAllString(string(text), ""), ";") {
			if regexp.MustCompile(`\bplants\b`).MatchString(statement) {
				found[file] = normal(found[file] + " " + statement)
			}
		}
	}
}
